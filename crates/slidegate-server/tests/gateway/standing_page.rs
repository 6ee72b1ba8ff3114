//! The page on which callers see where they stand, in a real browser.

use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};
use slidegate_testbed::{Browser, ColorScheme, Gateway, GatewayOptions, Upstream, wait_until};

use crate::{configure, options};

/// Names this directory for pictures of the page.
const SCREENSHOTS: &str = "SLIDEGATE_SCREENSHOTS";
/// Between bursts, so that they are in different parts of the shortest window.
const PAUSE: Duration = Duration::from_millis(400);
const WIDTHS: [u32; 4] = [320, 768, 1280, 1600];

/// A customer with three quotas, one of them used up, another policy with a long name, and a ban.
fn setup(upstream: &Upstream) -> GatewayOptions {
    let long = "a-policy-with-the-longest-name-that-its-operator-has-thought-of";
    configure(upstream)
        .tables("[standing]\nquotas = \"1000/min\"")
        .tables("[plans.pro]\nquotas = [\"60/20s\", \"1500/h\", \"250000/30d\"]")
        .tables("[[api_key]]\ncustomer = \"acme\"\nkey = \"k-123\"\nplan = \"pro\"")
        .policy("api", "", "identity = [\"api-key\", \"ip\"]\nplan = \"pro\"")
        .policy("exports", "5/h", "match = { path = \"/exports\" }\nidentity = \"customer\"")
        .policy(long, "4/min", "identity = \"header:x-tenant\"\nmatch = { path = \"/exports\" }")
        .policy(
            "login",
            "1/h",
            "match = { path = \"/login\" }\nidentity = \"customer\"\n\
             ban = { after = \"1/h\", for = \"2h\" }",
        )
}

struct Page<'b> {
    browser: &'b Browser,
}

#[test]
fn the_page_draws_what_was_spent_dark_and_light_narrow_and_wide() {
    let upstream = Upstream::simple();
    let trusted = setup(&upstream).key("trusted_proxies", "[\"127.0.0.1\"]");
    let gateway = Gateway::from(options().configuration(&trusted.text()).start());
    let browser = Browser::start();
    let headers =
        [("X-API-Key", "k-123"), ("X-Tenant", "an identity with spaces, shown as digest")];
    let lines: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let mut wire = gateway.wire();
    for burst in [1, 14, 6] {
        for _ in 0..burst {
            assert_eq!(wire.get("/", &lines).status(), 200);
        }
        thread::sleep(PAUSE);
    }
    let statuses = ["/exports"; 5].map(|path| wire.get(path, &lines).status());
    assert_eq!(statuses, [200, 200, 200, 200, 429]);
    assert_eq!(["/login"; 2].map(|path| wire.get(path, &lines).status()), [200, 429]);

    let page = Page { browser: &browser };
    let sent: Value =
        headers.iter().map(|(name, value)| (name.to_string(), json!(value))).collect();
    browser.devtools("Network.setExtraHTTPHeaders", &json!({"headers": sent}));
    browser.goto(&format!("http://{}/rate-limits", gateway.listener()));
    page.draws_what_was_spent();
    page.answers_a_question();
    page.is_readable();
    assert_eq!(browser.console_errors(), [""; 0], "the policy of its content lets its style in");
    let own = format!("http://{}/rate-limits", gateway.listener());
    let others: Vec<_> =
        browser.requests().into_iter().filter(|url| !url.starts_with(&own)).collect();
    assert!(others.iter().all(|url| url.ends_with("/favicon.ico")), "{others:?}");
}

impl Page<'_> {
    fn draws_what_was_spent(&self) {
        let sections = self.browser.texts("section h2");
        assert_eq!(sections.len(), 4, "{sections:?}");
        assert!(self.browser.text(".notice.bad").starts_with("Requests under login are refused"));
        // Every bar of every picture can be seen, and inside of its picture.
        let script = "return [...document.querySelectorAll('.density')].map(svg => {
            const frame = svg.getBoundingClientRect();
            const bars = [...svg.querySelectorAll('rect')].map(e => e.getBoundingClientRect());
            return [frame.width > 200 && frame.height > 40, bars.length, bars.every(bar =>
                bar.width > 0 && bar.height > 1 && bar.left >= frame.left - 1
                && bar.right <= frame.right + 1 && bar.top >= frame.top - 1
                && bar.bottom <= frame.bottom + 1)];
        })";
        let pictures = self.browser.script(script, vec![]);
        let pictures = pictures.as_array().unwrap();
        assert_eq!(pictures.len(), 6, "one for each quota");
        for picture in pictures {
            assert_eq!((&picture[0], &picture[2]), (&json!(true), &json!(true)), "{picture}");
        }
        assert!(pictures[0][1].as_u64().unwrap() >= 3, "a bar for each burst: {pictures:?}");
        assert_eq!(pictures[2][1], 1, "all in one part of thirty days");
        let label = self.browser.attribute(".density", "aria-label").unwrap();
        assert!(label.starts_with("When units were spent in the last 20 seconds: "), "{label}");
    }

    fn answers_a_question(&self) {
        self.browser.fill("#units", "1490");
        self.browser.click("form button");
        wait_until("the answer", || self.browser.has(".answer"));
        let answer = self.browser.text(".answer");
        assert!(answer.starts_with("1,490 more units would never pass at once"), "{answer}");
        self.browser.fill("#units", "40");
        self.browser.press("#units", "\u{E007}");
        wait_until("the next", || self.browser.text(".answer").starts_with("40 more units"));
    }

    fn is_readable(&self) {
        for width in WIDTHS {
            self.browser.resize(width, 900);
            let colours = [ColorScheme::Light, ColorScheme::Dark].map(|scheme| {
                self.browser.prefer(scheme);
                self.picture(width, scheme);
                self.colours()
            });
            for (light, dark) in colours[0].iter().zip(&colours[1]) {
                assert_ne!(light, dark, "{colours:?}");
            }
            for [ground, card, text, bar] in &colours {
                assert!(ground != text && card != text && card != bar, "{colours:?}");
            }
            // Neither the page nor a card scrolls sideways, and no text leaves its box.
            let script = "return [...document.querySelectorAll('html, main *:not(svg *)')]
                .filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth > 0
                    || e.getBoundingClientRect().right > innerWidth)
                .map(e => `${e.tagName} ${e.textContent.slice(0, 40)}`)";
            let wide = self.browser.script(script, vec![]);
            assert_eq!(wide, json!([]), "at {width} pixels");
        }
    }

    /// Of the page's ground, of a card and its text, and of bars.
    fn colours(&self) -> [String; 4] {
        [("body", "backgroundColor"), ("article", "backgroundColor"), ("article", "color")]
            .into_iter()
            .chain([(".density rect", "fill")])
            .map(|(css, property)| {
                let script =
                    "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]";
                let value = self.browser.script(script, vec![css.into(), property.into()]);
                value.as_str().unwrap().to_owned()
            })
            .collect::<Vec<_>>()
            .try_into()
            .unwrap()
    }

    /// A picture for a reader, if one is wanted.
    fn picture(&self, width: u32, scheme: ColorScheme) {
        let Some(directory) = std::env::var_os(SCREENSHOTS).map(PathBuf::from) else { return };
        let name = format!("standing-{width}-{scheme:?}.png").to_lowercase();
        self.browser.screenshot(directory.join(name));
    }
}
