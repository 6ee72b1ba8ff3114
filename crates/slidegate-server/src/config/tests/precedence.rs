//! A flag outweighs the environment, which outweighs the file, which outweighs the defaults.

use clap::Parser;
use slidegate::Facts;

use super::with;
use crate::config::sources::Environment;
use crate::config::{Config, File, Flags, LogFormat, Sources, StoreConfig, load};

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    flags: Flags,
}

fn flags(line: &str) -> Flags {
    Line::parse_from(std::iter::once("serve").chain(line.split_whitespace())).flags
}

fn loaded(text: &str, line: &str, variables: &[(&str, &str)]) -> Config {
    with(text, flags(line), variables).unwrap().config
}

fn problem(text: &str, line: &str, variables: &[(&str, &str)]) -> String {
    with(text, flags(line), variables).map(|_| ()).unwrap_err()
}

/// What a request from one address is charged.
fn charges(config: &Config) -> String {
    let facts = Facts::new(&http::Method::GET, "/").client("203.0.113.7".parse().unwrap());
    config.limiter.policies.explain(&facts).to_string()
}

fn default_of(quota: &str) -> String {
    format!("default: takes 1 unit of {quota} from ip:203.0.113.7\n")
}

#[test]
fn an_empty_configuration_serves_decisions_with_100_a_minute_per_address() {
    let config = load(&Sources::default()).unwrap().config;
    assert!(config.server.gateway.is_none());
    assert_eq!(config.server.decisions.as_ref().unwrap().listen[0].to_string(), "127.0.0.1:8081");
    assert_eq!(config.server.admin.listen[0].to_string(), "127.0.0.1:9090");
    assert!(matches!(
        config.server.store,
        StoreConfig::Memory { capacity: 1_000_000, snapshot: None }
    ));
    assert_eq!(charges(&config), default_of("100/min"));
    assert_eq!(config.server.log.level, "info");
}

#[test]
fn with_an_upstream_there_is_a_gateway() {
    let config = loaded("", "--upstream http://127.0.0.1:3000 --quota 5/s --quota 50/min", &[]);
    let gateway = config.server.gateway.as_ref().unwrap();
    assert_eq!(gateway.listen[0].to_string(), "127.0.0.1:8080");
    assert_eq!(gateway.proxy.routes[0].servers[0], "http://127.0.0.1:3000");
    assert!(gateway.proxy.workers >= 1);
    assert!(config.server.decisions.is_none());
    assert_eq!(charges(&config), default_of("5/s, 50/min"));
}

#[test]
fn a_default_policy_comes_from_flag_then_environment_then_file() {
    let file = "[[policy]]\nname = 'default'\nquotas = '3/min'\n";
    let variables: &[_] = &[("RATE_LIMIT_MAX", "2"), ("RATE_LIMIT_TTL", "10")];
    assert_eq!(charges(&loaded(file, "", &[])), default_of("3/min"));
    assert_eq!(charges(&loaded(file, "", variables)), default_of("2/10s"));
    assert_eq!(charges(&loaded(file, "--quota 1/h", variables)), default_of("1/h"));
    assert_eq!(charges(&loaded(file, "--profile strict", variables)), default_of("20/min"));
    assert_eq!(charges(&loaded("profile = 'staging'", "", &[])), default_of("200/min"));
    assert_eq!(charges(&loaded("profile = 'staging'", "", variables)), default_of("2/10s"));
    let other = "[[policy]]\nname = 'other'\nquotas = '3/min'\n";
    let tuned = charges(&loaded(other, "--quota 1/h", variables));
    assert_eq!(tuned, default_of("1/h").replace("default", "other"), "nothing is added beside it");
}

#[test]
fn profiles_are_the_ready_made_ones() {
    for (name, quota) in [
        ("development", "1000/min"),
        ("staging", "200/min"),
        ("production", "100/min"),
        ("strict", "20/min"),
    ] {
        assert_eq!(charges(&loaded("", &format!("--profile {name}"), &[])), default_of(quota));
        assert_eq!(charges(&loaded(&format!("profile = '{name}'"), "", &[])), default_of(quota));
    }
}

#[test]
fn environment_variables_start_a_server_without_any_file() {
    for (variables, quota) in [
        (&[("RATE_LIMIT_MAX", "10")][..], "10/min"),
        (&[("RATE_LIMIT_TTL", "3600")], "100/h"),
        (&[("RATE_LIMIT_MAX", "10"), ("RATE_LIMIT_WINDOW_MS", "500")], "10/500ms"),
        (&[("RATE_LIMIT_TTL", "60"), ("RATE_LIMIT_WINDOW_MS", "60000")], "100/min"),
        (&[("RATE_LIMIT_MAX", ""), ("RATE_LIMIT_ENABLED", "TRUE")], "100/min"),
    ] {
        assert_eq!(charges(&loaded("", "", variables)), default_of(quota), "{variables:?}");
    }
}

const SEVERAL: &str = "[plans.free]\nquotas = '60/min'\n\
    [[policy]]\nname = 'api'\nquotas = '100/min'\n\
    [[policy]]\nname = 'login'\nquotas = '5/min'\nmatch = { method = 'POST', path = '/login' }\n\
    [[policy]]\nname = 'daily'\nquotas = ['60/min', '1000/day']\n\
    [[policy]]\nname = 'sold'\nplan = 'free'\n";

#[test]
fn environment_variables_tune_a_policy_of_the_file_and_add_none() {
    let quotas = |variables: &[(&str, &str)], line: &str| -> Vec<String> {
        let config = loaded(SEVERAL, line, variables);
        let policies: Vec<_> = config.limiter.policies.iter().collect();
        assert_eq!(policies.len(), 4, "{variables:?}");
        assert_eq!(policies[1].paths(), ["/login"], "{variables:?}");
        let list = |quotas: &[slidegate::Quota]| {
            quotas.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        policies.iter().take(3).map(|policy| list(policy.quotas())).collect()
    };
    let name = |policy| ("RATE_LIMIT_POLICY", policy);
    for (variables, line, expected) in [
        (&[name("api"), ("RATE_LIMIT_MAX", "7")][..], "", ["7/min", "5/min", "60/min 1000/day"]),
        (&[name("login"), ("RATE_LIMIT_TTL", "3600")], "", ["100/min", "5/h", "60/min 1000/day"]),
        (
            &[name("daily"), ("RATE_LIMIT_MAX", "30"), ("RATE_LIMIT_TTL", "60")],
            "",
            ["100/min", "5/min", "30/min 1000/day"],
        ),
        (
            &[name("daily"), ("RATE_LIMIT_MAX", "9"), ("RATE_LIMIT_WINDOW_MS", "86400000")],
            "",
            ["100/min", "5/min", "60/min 9/day"],
        ),
        (&[name("daily")], "--quota 1/s --quota 2/h", ["100/min", "5/min", "1/s 2/h"]),
        (
            &[name("api"), ("RATE_LIMIT_MAX", "7")],
            "--profile strict",
            ["20/min", "5/min", "60/min 1000/day"],
        ),
        (&[name("api")], "", ["100/min", "5/min", "60/min 1000/day"]),
    ] {
        assert_eq!(quotas(variables, line), expected, "{variables:?} {line}");
    }
}

#[test]
fn what_the_environment_cannot_apply_is_an_error_with_the_remedy() {
    let name = |policy| ("RATE_LIMIT_POLICY", policy);
    for (variables, line, expected) in [
        (
            &[("RATE_LIMIT_MAX", "7")][..],
            "",
            "environment: RATE_LIMIT_MAX = \"7\": there are the policies api, login, daily, sold, \
             and none is named default: say in RATE_LIMIT_POLICY which one is meant",
        ),
        (
            &[],
            "--quota 7/s",
            "flag --quota = \"7/s\": there are the policies api, login, daily, sold,",
        ),
        (
            &[name("lgin"), ("RATE_LIMIT_MAX", "7")],
            "",
            "environment: RATE_LIMIT_POLICY = \"lgin\": there is no such policy: did you mean login?",
        ),
        (
            &[name("nobody")],
            "",
            "environment: RATE_LIMIT_POLICY = \"nobody\": there is no such policy; there is api,",
        ),
        (
            &[name("sold"), ("RATE_LIMIT_MAX", "7")],
            "",
            "environment: RATE_LIMIT_MAX = \"7\": policy \"sold\" uses plans,",
        ),
        (
            &[name("sold")],
            "--profile strict",
            "flag --profile = \"20/min\": policy \"sold\" uses plans,",
        ),
        (
            &[name("daily"), ("RATE_LIMIT_MAX", "7")],
            "",
            "environment: RATE_LIMIT_MAX = \"7\": policy \"daily\" has the quotas 60/min and \
             1000/day: set RATE_LIMIT_MAX together with RATE_LIMIT_TTL or RATE_LIMIT_WINDOW_MS to \
             the window of the one that is meant (1min or 1d)",
        ),
        (
            &[name("daily"), ("RATE_LIMIT_TTL", "60")],
            "",
            "environment: RATE_LIMIT_TTL: policy \"daily\" has the quotas",
        ),
        (
            &[name("daily"), ("RATE_LIMIT_MAX", "7"), ("RATE_LIMIT_TTL", "61")],
            "",
            "environment: RATE_LIMIT_MAX = \"7\": policy \"daily\" has the quotas",
        ),
    ] {
        let problem = problem(SEVERAL, line, variables);
        assert!(problem.starts_with(expected), "{problem}");
        assert_eq!(problem.lines().count(), 1, "{problem}");
    }
    let cost = "[[policy]]\nname = 'export'\nquotas = '100/h'\ncost = 10\n";
    let problem = problem(cost, "", &[("RATE_LIMIT_MAX", "9")]);
    assert!(problem.ends_with("no request could ever pass a quota of 9 units"), "{problem}");
}

#[test]
fn bad_variables_are_named_with_their_value() {
    for (variables, expected) in [
        (
            &[("RATE_LIMIT_MAX", "many")][..],
            "environment: RATE_LIMIT_MAX = \"many\": expected a whole number from 1",
        ),
        (&[("RATE_LIMIT_MAX", "0")], "environment: RATE_LIMIT_MAX = \"0\": expected"),
        (&[("RATE_LIMIT_MAX", "+5")], "environment: RATE_LIMIT_MAX = \"+5\": expected"),
        (&[("RATE_LIMIT_TTL", "60s")], "environment: RATE_LIMIT_TTL = \"60s\": expected"),
        (
            &[("RATE_LIMIT_TTL", "4000000000")],
            "environment: RATE_LIMIT_TTL = \"4000000000\": expected",
        ),
        (
            &[("RATE_LIMIT_TTL", "1"), ("RATE_LIMIT_WINDOW_MS", "2")],
            "environment: RATE_LIMIT_WINDOW_MS = \"2\": RATE_LIMIT_TTL has another length",
        ),
        (
            &[("RATE_LIMIT_ENABLED", "maybe")],
            "environment: RATE_LIMIT_ENABLED = \"maybe\": expected true or false",
        ),
        (&[("REDIS_URL", "hunter2@host")], "environment: REDIS_URL: the Redis URL has no scheme"),
        (
            &[("SLIDEGATE_CONFIG", "/does/not/exist")],
            "/does/not/exist: cannot be read: No such file",
        ),
    ] {
        let sources = Sources {
            environment: Environment::of(variables.iter().copied()),
            ..Sources::default()
        };
        let problem = load(&sources).map(|_| ()).unwrap_err().to_string();
        assert!(problem.starts_with(expected), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
}

#[test]
fn policies_can_be_switched_off_with_a_warning() {
    let file = "[blocked]\nnetworks = ['198.51.100.0/24']\n";
    let loaded = with(file, Flags::default(), &[("RATE_LIMIT_ENABLED", "false")]).unwrap();
    assert!(!loaded.config.limiter.enforced);
    assert_eq!(charges(&loaded.config), "no policies\n");
    let blocked = Facts::new(&http::Method::GET, "/").client("198.51.100.1".parse().unwrap());
    assert!(loaded.config.limiter.policies.explain(&blocked).blocked.is_some());
    assert!(loaded.warnings[0].to_string().contains("NO POLICY IS ENFORCED"));
    assert_eq!(loaded.config.limiter.summary.policies.len(), 1, "what would be in force is known");
}

#[test]
fn redis_comes_from_flag_then_environment_then_file() {
    let shown = |config: Config| match config.server.store {
        StoreConfig::Redis(redis) => redis.shown(),
        StoreConfig::Memory { .. } => "memory".to_owned(),
    };
    let (file, variables) = ("[store]\nurl = 'redis://file'", &[("REDIS_URL", "redis://variable")]);
    assert_eq!(shown(loaded(file, "", &[])), "file:6379");
    assert_eq!(shown(loaded(file, "", variables)), "variable:6379");
    assert_eq!(shown(loaded(file, "--redis redis://flag", variables)), "flag:6379");
    assert_eq!(shown(loaded("", "", variables)), "variable:6379");
    assert_eq!(shown(loaded("[store]\nkind = 'memory'", "", variables)), "memory");
    assert_eq!(shown(loaded("[store]\nkind = 'memory'", "--redis redis://flag", &[])), "flag:6379");
    let problem = problem("", "--redis hunter2", &[]);
    assert_eq!(
        problem,
        "flag --redis: the Redis URL has no scheme: expected something like redis://127.0.0.1:6379"
    );
}

#[test]
fn flags_outweigh_the_file_wherever_both_speak() {
    let file = "[gateway]\nupstream = 'http://file'\nlisten = '127.0.0.1:1'\nworkers = 7\n\
                trusted_proxies = '10.0.0.0/8'\nclient_address = 'forwarded'\n\
                [admin]\nlisten = '127.0.0.1:2'\ntoken = 'file'\n[decisions]\nlisten = '127.0.0.1:3'\n\
                [log]\nformat = 'pretty'\naccess = false\n";
    let line = "--upstream http://a --upstream http://b --listen unix:/run/a.sock --workers 2 \
                --trusted-proxy 192.0.2.0/24 --client-address x-real-ip --admin 127.0.0.1:12 \
                --decisions 127.0.0.1:13 --log json --access-log";
    let config = loaded(file, line, &[("SLIDEGATE_ADMIN_TOKEN", "variable")]);
    let gateway = config.server.gateway.unwrap();
    assert_eq!(gateway.proxy.routes[0].servers.len(), 2);
    assert_eq!(gateway.listen[0].to_string(), "unix:/run/a.sock");
    assert_eq!(gateway.proxy.workers, 2);
    let clients = &config.limiter.client_address;
    assert!(
        clients.trusts("192.0.2.1".parse().unwrap())
            && !clients.trusts("10.0.0.1".parse().unwrap())
    );
    assert_eq!(clients.source().to_string(), "x-real-ip");
    assert_eq!(config.server.admin.listen[0].to_string(), "127.0.0.1:12");
    assert_eq!(config.server.admin.token.unwrap().reveal(), "variable");
    assert_eq!(config.server.decisions.unwrap().listen[0].to_string(), "127.0.0.1:13");
    assert_eq!((config.server.log.format, config.server.log.access), (LogFormat::Json, true));
}

#[test]
fn flags_that_cannot_be_are_named() {
    for (line, expected) in [
        (
            "--listen 127.0.0.1:1",
            "flag --listen: upstream: missing: expected where allowed requests go",
        ),
        ("--upstream localhost", "flag --upstream = \"localhost\": expected http or https"),
        ("--upstream http://me:hunter2@a", "flag --upstream: expected http or https"),
        (
            "--admin 127.0.0.1:5 --decisions 127.0.0.1:5",
            "flag --admin = \"127.0.0.1:5\": address already used by flag --decisions",
        ),
    ] {
        let problem = problem("", line, &[]);
        assert!(problem.starts_with(expected), "{problem}");
        assert!(!problem.contains("hunter2"), "{problem}");
    }
}

#[test]
fn a_configuration_file_is_named_by_the_environment_unless_a_flag_does() {
    let folder = std::env::temp_dir().join(format!("slidegate-precedence-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let variable = write("variable.toml", "profile = 'strict'");
    let flag = write("flag.toml", "profile = 'staging'\n[admin]\ntoken_file = 'token'");
    write("token", "hunter2\n");
    let environment = Environment::of([("SLIDEGATE_CONFIG", variable.to_str().unwrap())]);
    let mut sources = Sources { environment, ..Sources::default() };
    assert_eq!(sources.path(), Some(variable));
    assert_eq!(charges(&load(&sources).unwrap().config), default_of("20/min"));
    sources.file = Some(File::Path(flag));
    let config = load(&sources).unwrap().config;
    assert_eq!(charges(&config), default_of("200/min"));
    assert_eq!(
        config.server.admin.token.unwrap().reveal(),
        "hunter2",
        "beside the file, without its line's end"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_is_printed_for_debugging_has_no_secret() {
    let text = "[admin]\ntoken = 'hunter2'\n[store]\nurl = 'redis://:hunter2@a'\n[plans.p]\n\
                quotas = '1/s'\n[[api_key]]\nkey = 'hunter2'\nplan = 'p'\n\
                [exempt]\napi_keys = 'hunter2'\nauthorizations = ['hunter2']\n";
    let flags = flags("--redis redis://:hunter2@b");
    let variables = [("SLIDEGATE_ADMIN_TOKEN", "hunter2"), ("REDIS_URL", "redis://:hunter2@c")];
    let file = File::Text { name: "test.toml".to_owned(), text: text.to_owned() };
    let loaded = with(text, flags.clone(), &variables).unwrap();
    assert!(!format!("{loaded:?}").contains("hunter2"));
    let sources = Sources { flags, environment: Environment::of(variables), ..Sources::default() };
    assert!(!format!("{sources:?}").contains("hunter2"));
    assert!(!format!("{file:?}").contains("hunter2"));
}
