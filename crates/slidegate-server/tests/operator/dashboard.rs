//! The dashboard in a real browser, in front of two gateways that share a Redis.

use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::Value;
use slidegate_testbed::{
    Browser, ColorScheme, Directory, Gateway, GatewayOptions, RedisServer, Upstream, Wire,
    wait_until,
};

use crate::options;
use crate::terminal::{for_many_clients, passing, passing_at};

const TOKEN: &str = "hunter2hunter2";
const HOSTILE: &str = "user:<img/src=x/onerror=alert(1)>";
/// Names this directory for pictures of the page, which the documentation has.
const SCREENSHOTS: &str = "SLIDEGATE_SCREENSHOTS";
/// How long there is traffic before, so that the charts have something to show.
const TRAFFIC_FOR_PICTURES: Duration = Duration::from_secs(200);

#[test]
fn an_operator_sees_what_is_limited_and_acts_on_it() {
    let (redis, upstream, directory) = (RedisServer::start(), Upstream::simple(), Directory::new());
    let one = FixedGateway::new(&upstream, &redis, &directory);
    let two = FixedGateway::new(&upstream, &redis, &directory);
    let traffic = Traffic::begin(&one.process);
    let browser = Browser::start();
    let page = Page { browser: &browser };

    page.gives_the_token(&one);
    page.shows_the_figures_of_the_api(&one, traffic);
    page.lists_policies(&one);
    page.finds_accounts(&one);
    page.bans_and_lifts(&one, &two);
    page.resets_grants_and_exempts(&one);
    page.tries_a_request(&one);
    page.is_silent_while_hidden();
    page.fits_a_phone();
    assert_eq!(browser.console_errors(), [""; 0]);
    let own = [one.url(), two.url()];
    let is_own = |url: &&String| own.iter().any(|own| url.starts_with(own));
    let requests = browser.requests();
    assert!(requests.len() > 100, "{}", requests.len());
    let foreign: Vec<_> = requests.iter().filter(|url| !is_own(url)).collect();
    assert_eq!(foreign, [""; 0]);
    assert!(!requests.iter().any(|url| url.contains("k-123")), "a key is sent as a digest");
    page.survives_the_server(one);
}

/// What the page writes as `295 µs` or `1.2 ms`.
fn microseconds(text: &str) -> f64 {
    let (number, unit) = text.split_once(' ').unwrap_or_else(|| panic!("a time: {text}"));
    let factor = match unit {
        "µs" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => panic!("a time: {text}"),
    };
    number.parse::<f64>().unwrap() * factor
}

/// A gateway whose admin endpoint is at the same address after a restart.
struct FixedGateway {
    setup: String,
    process: Gateway,
}

impl FixedGateway {
    fn new(upstream: &Upstream, redis: &RedisServer, directory: &Directory) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let audit = directory.file(&format!("audit-{port}.jsonl"));
        let text = setup(upstream, redis, &audit).text();
        let admin = "[admin]\nlisten = \"127.0.0.1:";
        let setup = text.replace(&format!("{admin}0"), &format!("{admin}{port}"));
        let process = Self::start(&setup);
        Self { setup, process }
    }

    fn start(setup: &str) -> Gateway {
        let options = options().variable("SLIDEGATE_ADMIN_TOKEN", TOKEN);
        Gateway::from(options.configuration(setup).start())
    }

    fn url(&self) -> String {
        format!("http://{}/", self.process.admin())
    }

    fn api(&self, path: &str) -> Value {
        let token = format!("Authorization: Bearer {TOKEN}\r\n");
        let answer = Wire::connect(self.process.admin()).get(path, &token);
        serde_json::from_slice(&answer.body).unwrap()
    }
}

fn setup(upstream: &Upstream, redis: &RedisServer, audit: &std::path::Path) -> GatewayOptions {
    for_many_clients(upstream)
        .key("user_header", "\"x-user\"")
        .tables(&format!("[store]\nkind = \"redis\"\nurl = {:?}\ndeadline = \"2s\"", redis.url()))
        .tables(&format!("[audit]\nfile = {audit:?}"))
        .tables(
            "[plans.free]\nquotas = [\"60/min\", \"5000/d\"]\n[plans.pro]\nquotas = [\"600/min\"]",
        )
        .tables("[[api_key]]\nname = \"acme\"\nkey = \"k-123\"\nplan = \"pro\"")
        .tables("[[api_key]]\ncustomer = \"initech\"\nkey = \"k-456\"")
        .policy(
            "api",
            "",
            "identity = [\"api-key\", \"user\", \"ip\"]\n\
             plan = { header = \"x-plan\", default = \"free\" }",
        )
        .policy(
            "login",
            "5/min",
            "match = { path = \"/login\" }\non_store_error = \"deny\"\n\
             candidate = { quotas = [\"3/min\"] }\nban = { after = \"1000/min\", for = \"10min\" }",
        )
        .policy(
            "search",
            "12/10s",
            "match = { path = \"/search\" }\nshadow = true\non_store_error = \"allow\"",
        )
}

/// Clients of all kinds, until they are stopped.
struct Traffic {
    over: Arc<AtomicBool>,
    clients: JoinHandle<()>,
    began: Instant,
}

impl Traffic {
    fn begin(gateway: &Gateway) -> Self {
        let over = Arc::<AtomicBool>::default();
        let (stop, gateway) = (over.clone(), gateway.listener());
        let clients = thread::spawn(move || {
            let mut wire = Wire::connect(gateway);
            let mut send = |path: &str, headers: &str| {
                assert!(wire.get(path, headers).status() < 500);
            };
            for turn in 0_u32.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let wave = f64::from(turn) / 240.0;
                send("/", &format!("X-Forwarded-For: 10.0.1.{}\r\n", turn % 23));
                send("/", "X-Api-Key: k-123\r\nX-Forwarded-For: 10.0.2.1\r\n");
                if turn % 3 == 0 {
                    send("/", &format!("X-User: {}\r\n", HOSTILE.trim_start_matches("user:")));
                }
                if turn % 7 == 0 || wave.sin() > 0.6 {
                    send("/login", "X-Forwarded-For: 10.0.0.7\r\n");
                }
                if turn % 4 == 0 {
                    send("/search", &format!("X-Forwarded-For: 10.0.3.{}\r\n", turn % 2));
                }
                let pause_ms = 70.0 + 45.0 * (wave / 1.7).sin();
                thread::sleep(Duration::from_millis(pause_ms as u64));
            }
        });
        Self { over, clients, began: Instant::now() }
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        self.clients.join().unwrap();
    }
}

struct Page<'b> {
    browser: &'b Browser,
}

impl Page<'_> {
    fn gives_the_token(&self, gateway: &FixedGateway) {
        self.browser.goto(&gateway.url());
        wait_until("the question", || self.browser.has("dialog#token[open]"));
        self.browser.fill("#token input", "not this one");
        self.browser.press("#token input", "\u{E007}");
        wait_until("the refusal", || {
            self.browser.text("#token-problem") == "This is not the token of this server."
        });
        self.enters_the_token();
        let errors = self.browser.console_errors();
        assert!(errors.iter().all(|error| error.contains("401 (Unauthorized)")), "{errors:?}");
        self.browser.reload();
        self.has_status("All good");
        assert!(!self.browser.has("dialog#token[open]"), "it is asked for once");
    }

    fn enters_the_token(&self) {
        wait_until("the question", || self.browser.has("dialog#token[open]"));
        self.browser.fill("#token input", TOKEN);
        self.browser.click("#token button");
        self.has_status("All good");
    }

    fn shows_the_figures_of_the_api(&self, gateway: &FixedGateway, traffic: Traffic) {
        if std::env::var_os(SCREENSHOTS).is_some() {
            thread::sleep(TRAFFIC_FOR_PICTURES.saturating_sub(traffic.began.elapsed()));
            self.browser.resize(1120, 780);
            self.picture("now", "now");
            self.browser.resize(1280, 800);
            self.browser.prefer(ColorScheme::Dark);
            self.picture("accounts", "dark");
            self.browser.prefer(ColorScheme::Light);
        }
        let is_counted = |kind: &str| {
            let now = gateway.api("/v1/now");
            now["policies"].as_array().unwrap().iter().any(|policy| sum(&policy[kind]) > 0)
        };
        wait_until("a step with traffic", || is_counted("refused") && is_counted("shadow"));
        traffic.end();
        self.goes_to("now");
        for kind in ["allowed", "refused", "shadow", "candidate", "failed"] {
            wait_until(&format!("equal figures: {kind}"), || {
                let now = gateway.api("/v1/now");
                let each = now["policies"].as_array().unwrap().iter().map(|one| sum(&one[kind]));
                let each: Vec<u64> = each.collect();
                let shown = self.browser.texts(&format!("[data-total={kind}]"));
                let shown: Vec<u64> =
                    shown.iter().map(|text| text.replace(',', "").parse().unwrap()).collect();
                shown[..] == [&[each.iter().sum()], &each[..]].concat()
            });
        }
        for quantile in ["p50", "p99"] {
            wait_until(&format!("an equal {quantile}"), || {
                let now = gateway.api("/v1/now");
                let times = now["decision_time"][format!("{quantile}_us")].as_array().unwrap();
                let latest = times.iter().rev().find_map(Value::as_f64).unwrap();
                let shown = self.browser.text(&format!("[data-key={quantile}] dd"));
                // With three digits.
                (microseconds(&shown) / latest - 1.0).abs() < 0.006
            });
        }
        let panels = self.browser.texts("main .panel").join("\n");
        for words in [
            "2 gateways known on this Redis",
            "login refused as unavailable",
            "closed: Redis is asked",
        ] {
            assert!(panels.contains(words), "{words}: {panels}");
        }
        assert!(!panels.contains(TOKEN));
        let lines = self.browser.attribute(".chart .line.refused", "d").unwrap();
        assert!(lines.starts_with('M'), "{lines}");
        self.browser.click("[data-policy=login]");
        assert_eq!(self.browser.text(".chart figcaption"), "login, per second");
        self.is_labelled();
    }

    /// By keyboard, and for those who hear it.
    fn is_labelled(&self) {
        self.browser.reload();
        self.is_at("now");
        self.browser.press("body", "\u{E004}");
        let focus = || self.browser.script("return document.activeElement.id", vec![]);
        assert_eq!(focus(), "skip", "the first that the Tab key finds");
        self.browser.press("#skip", "\u{E007}");
        assert_eq!(focus(), "main");
        for view in ["now", "policies", "accounts", "account/ip:10.0.0.7", "try"] {
            self.goes_to(view);
            let nameless =
                "return [...document.querySelectorAll('input, select, textarea, svg[role]')]
                .filter(e => !e.labels?.length && !e.getAttribute('aria-label')).length";
            assert_eq!(self.browser.script(nameless, vec![]), 0);
        }
    }

    /// What may be an API key is sent as a digest.
    fn sends_no_key(&self) {
        self.goes_to("accounts");
        self.browser.fill("#query", "k-123");
        self.browser.press("#query", "\u{E007}");
        wait_until("an answer", || self.browser.text("main").contains("No API key has this name"));
        let errors = self.browser.console_errors();
        assert!(errors.iter().all(|error| error.contains("api-key%3A~")), "{errors:?}");
        self.goes_to("account/ip:10.0.0.7");
        wait_until("the account", || self.browser.has(".density .spent"));
    }

    fn lists_policies(&self, gateway: &FixedGateway) {
        self.goes_to("policies");
        let list = gateway.api("/v1/policies");
        let names = list["policies"].as_array().unwrap().iter();
        let names: Vec<&str> = names.map(|one| one["policy"].as_str().unwrap()).collect();
        let rows = self.browser.texts("main section:first-of-type tbody tr");
        assert_eq!(rows.len(), names.len());
        for (row, name) in rows.iter().zip(names) {
            assert!(row.starts_with(name), "{row}");
        }
        assert!(
            rows[0].contains("by plan in x-plan") && rows[0].contains("600/min"),
            "{}",
            rows[0]
        );
        assert!(rows[1].contains("3/min\nwould refuse "), "{}", rows[1]);
        assert!(rows[2].contains("shadow: refuses nothing"), "{}", rows[2]);
    }

    fn finds_accounts(&self, gateway: &FixedGateway) {
        let mut wire = gateway.process.wire();
        for _ in 0..40 {
            wire.get("/", &format!("X-User: {}\r\n", HOSTILE.trim_start_matches("user:")));
        }
        for _ in 0..8 {
            wire.get("/login", "X-Forwarded-For: 10.0.0.7\r\n");
        }
        for _ in 0..50 {
            wire.get("/", "X-Api-Key: k-456\r\n");
        }
        self.goes_to("accounts");
        let rows = || self.browser.texts("main .columns tbody tr").join("\n");
        let all = [HOSTILE, "ip:10.0.0.7", "customer:initech"];
        wait_until("all of them", || all.iter().all(|identity| rows().contains(identity)));
        assert!(!self.browser.has("main img"), "an identity is text");
        self.browser.fill("#query", "0.7");
        wait_until("the search", || !rows().contains(HOSTILE));
        assert!(rows().contains("ip:10.0.0.7"));
        for (text, identity) in [
            ("acme", "api-key:acme"),
            ("customer:initech", "customer:initech"),
            (HOSTILE, HOSTILE),
            ("10.0.0.7", "ip:10.0.0.7"),
        ] {
            self.goes_to("accounts");
            self.browser.fill("#query", text);
            self.browser.press("#query", "\u{E007}");
            self.is_at(&format!("account/{identity}"));
            assert_eq!(self.browser.texts("h1"), [identity]);
        }
        wait_until("the account", || self.browser.has(".density .spent"));
        self.sends_no_key();
        let cards = self.browser.texts(".cards .panel").join("\n");
        assert!(
            cards.contains("5 of 5 spent, 0 left") && cards.contains("Come free: 1 unit at"),
            "{cards}"
        );
        assert!(
            self.browser.text("[aria-label='Audit trail'] tbody").contains("/login: 429, by login")
        );
        self.browser.resize(1280, 1180);
        self.picture("account/ip:10.0.0.7", "account");
        self.browser.resize(1280, 800);
    }

    fn bans_and_lifts(&self, one: &FixedGateway, two: &FixedGateway) {
        let is_refused = |gateway: &FixedGateway| passing(&gateway.process, "10.0.0.7", 1) == 0;
        assert!(!is_refused(one) && !is_refused(two), "there are units of the plan left");
        self.browser.click("#actions [data-act=ban]");
        self.browser.fill("#act [name=reason]", "a <b>test</b>");
        let effect = self.browser.text("#act .effect");
        assert!(
            effect.starts_with("Every request of ip:10.0.0.7 is refused from now until ")
                && effect.ends_with(", at all 2 gateways within a second."),
            "{effect}"
        );
        self.browser.click("#confirm");
        wait_until("the ban", || {
            self.browser.text("#outcome").starts_with("ip:10.0.0.7 is banned until ")
        });
        assert!(is_refused(one), "the next request");
        wait_until("the ban on the page", || {
            self.browser.texts(".badge.bad").iter().any(|text| text.starts_with("banned, "))
                && self.browser.texts("[aria-label=Overrides] tbody tr").len() == 1
        });
        wait_until("the ban at the other gateway", || is_refused(two));

        // The other's page has it too, and lifts it for both.
        self.browser.goto(&two.url());
        self.enters_the_token();
        self.goes_to("accounts");
        let row = "[aria-label=Overrides] tbody tr";
        wait_until("the override", || self.browser.texts(row).join("").contains("a <b>test</b>"));
        self.browser.fill("#query", "0.7");
        self.browser.click(&format!("{row} [data-act=lift]"));
        self.browser.fill("#act [name=reason]", "over");
        self.browser.click("#confirm");
        wait_until("the lift", || self.browser.texts(row).is_empty());
        assert!(!is_refused(two));
        wait_until("the lift at the first", || !is_refused(one));
        let errors = self.browser.console_errors();
        assert!(errors.iter().all(|error| error.contains("401 (Unauthorized)")), "{errors:?}");
        self.browser.goto(&one.url());
        self.has_status("All good");
    }

    fn resets_grants_and_exempts(&self, gateway: &FixedGateway) {
        let passing = || passing_at(&gateway.process, "/login", "10.0.0.8", 9);
        assert_eq!(passing(), 5);
        self.goes_to("account/ip:10.0.0.8");
        for (action, outcome, passed) in [
            ("grant", "ip:10.0.0.8 has 3 more per min until ", 3),
            ("reset", "ip:10.0.0.8 is reset under api, login.", 8),
            ("exempt", "ip:10.0.0.8 is exempt until ", 9),
        ] {
            self.browser.click(&format!("#actions [data-act={action}]"));
            self.browser.fill("#act [name=reason]", "a test");
            if action == "grant" {
                self.browser.fill("#act [name=units]", "3");
                self.browser.click("#confirm");
                assert!(self.browser.has("#act[open]"), "a quota has to be chosen");
                self.browser.click("#act [name=quota] option[value=min]");
            }
            self.browser.click("#confirm");
            wait_until(outcome, || self.browser.text("#outcome").starts_with(outcome));
            assert_eq!(passing(), passed, "{action}");
        }
        let overrides = || self.browser.texts("[aria-label=Overrides] tbody td:first-child");
        wait_until("both", || overrides() == ["grant +3 per min", "exempt"]);
    }

    fn tries_a_request(&self, gateway: &FixedGateway) {
        assert_eq!(passing_at(&gateway.process, "/login", "10.0.0.9", 6), 5);
        self.goes_to("try");
        self.browser.fill("#try [name=path]", "/login");
        self.browser.fill("#try [name=client]", "10.0.0.9");
        self.browser.fill("#try [name=headers]", "x-plan: pro");
        self.browser.click("#try button");
        let verdict = || self.browser.texts("#verdict").join("");
        wait_until("the verdict", || verdict().starts_with("would be refused with status 429"));
        let why = self.browser.text("[aria-label=Policies] table");
        assert!(why.contains("takes 1 unit of 5/min from ip:10.0.0.9"), "{why}");
        assert!(why.contains("not for this path, only /search"), "{why}");
        self.browser.fill("#try [name=client]", "nowhere");
        self.browser.click("#try button");
        wait_until("the problem", || self.browser.text("#try .problem").starts_with("client: "));
        let errors = self.browser.console_errors();
        assert!(errors.iter().all(|error| error.contains("400 (Bad Request)")), "{errors:?}");
    }

    fn is_silent_while_hidden(&self) {
        self.goes_to("now");
        let becomes = |state: &str| {
            let script = "Object.defineProperty(document, 'visibilityState',
                    { value: arguments[0], configurable: true });
                document.dispatchEvent(new Event('visibilitychange'));";
            self.browser.script(script, vec![state.into()]);
        };
        let asked = || {
            let count = "return performance.getEntriesByType('resource').length";
            self.browser.script(count, vec![]).as_u64().unwrap()
        };
        becomes("hidden");
        // What was under way may end.
        thread::sleep(Duration::from_millis(300));
        let before = asked();
        thread::sleep(Duration::from_millis(5500));
        assert_eq!(asked(), before);
        becomes("visible");
        wait_until("it to ask again", || asked() > before);
    }

    fn fits_a_phone(&self) {
        self.browser.resize(360, 740);
        for view in ["now", "policies", "accounts", "account/ip:10.0.0.7", "try"] {
            self.goes_to(view);
            let is_wider = "return document.documentElement.scrollWidth > innerWidth";
            assert_eq!(self.browser.script(is_wider, vec![]), false, "{view}");
            let colours = |scheme| {
                self.browser.prefer(scheme);
                let script = "const style = getComputedStyle(document.body);
                    return [style.backgroundColor, style.color]";
                self.browser.script(script, vec![])
            };
            let (dark, light) = (colours(ColorScheme::Dark), colours(ColorScheme::Light));
            assert!(dark[0] != light[0] && dark[1] != light[1], "{view}: {dark} {light}");
            assert!(dark[0] != dark[1] && light[0] != light[1], "{view}: {dark} {light}");
        }
        self.picture("now", "phone");
        self.browser.resize(1280, 800);
    }

    fn survives_the_server(&self, gateway: FixedGateway) {
        self.goes_to("now");
        let FixedGateway { setup, process } = gateway;
        drop(process);
        wait_until("the loss", || {
            self.browser.text("#status").starts_with("No answer from the server since ")
        });
        let restarted = FixedGateway::start(&setup);
        self.has_status("All good");
        // And a source of keys that is away.
        drop(restarted);
        let source = "[key_source]\nurl = \"postgres://slidegate:hunter3@127.0.0.1:9/app\"\n\
                      query = \"select digest, customer from api_keys\"\n";
        let _degraded = FixedGateway::start(&format!("{setup}\n{source}"));
        wait_until("the source's trouble", || {
            self.browser.text("#status").starts_with("Degraded: key_source has never answered: ")
        });
        self.goes_to("now");
        let panels = self.browser.texts("main .panel").join("\n");
        assert!(panels.contains("key_source has never answered: "), "{panels}");
        assert!(!panels.contains("hunter3"), "{panels}");
        let errors = self.browser.console_errors();
        assert!(errors.iter().all(|error| error.contains("net::ERR_")), "{errors:?}");
    }

    fn has_status(&self, text: &str) {
        wait_until(text, || self.browser.text("#status") == text);
    }

    /// Opens a view and waits until it has its data.
    fn goes_to(&self, view: &str) {
        self.browser.script("location.hash = arguments[0]", vec![format!("#/{view}").into()]);
        self.is_at(view);
    }

    fn is_at(&self, view: &str) {
        let shown = format!("main[data-view='{view}'][aria-busy=false]");
        wait_until(view, || self.browser.has(&shown));
    }

    /// A picture for the documentation, if one is wanted.
    fn picture(&self, view: &str, name: &str) {
        let Some(directory) = std::env::var_os(SCREENSHOTS).map(PathBuf::from) else { return };
        self.goes_to(view);
        self.browser.screenshot(directory.join(format!("dashboard-{name}.png")));
    }
}

fn sum(list: &Value) -> u64 {
    list.as_array().unwrap().iter().filter_map(Value::as_u64).sum()
}
