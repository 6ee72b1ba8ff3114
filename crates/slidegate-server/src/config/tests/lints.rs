//! What is probably not meant: a case that warns and one that does not, for each.

use super::{file, with};
use crate::config::Flags;

/// A policy to build on, so that nothing else is to be warned about.
const API: &str = "[[policy]]\nname = 'api'\nquotas = '5/min'\n";
const GATEWAY: &str = "[gateway]\nupstream = 'http://a'\n";

const PROXIES: &str = "trusted_proxies = '10.0.0.0/8'\nclient_address = 'x-real-ip'\n";

#[track_caller]
fn check(warned: &str, expected: &str, unwarned: &str) {
    let warnings = |text: &str| {
        let loaded = file(text).unwrap_or_else(|problems| panic!("{text}\n{problems}"));
        loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let found = warnings(warned);
    assert!(found.len() == 1 && found[0].contains(expected), "{warned}\n{found:?}\n{expected}");
    assert_eq!(warnings(unwarned), [""; 0], "{unwarned}");
}

#[test]
fn customers_that_nothing_counts_or_names_are_warned_of() {
    let by = |source: &str| format!("{API}identity = ['{source}', 'ip']\n");
    let keys = "[key_source]\nurl = 'postgres://u@a/b?sslmode=require'\nquery = 'select digest, customer from k'\n";
    check(
        &format!("{GATEWAY}{API}{keys}"),
        "key_source: no policy counts by api-key or customer",
        &format!("{GATEWAY}{}{keys}", by("customer")),
    );
    let jwt = "[[jwt]]\nissuer = 'a'\njwks = 'https://a/'\naudience = 'api'\n\
               algorithms = ['RS256']\nuser = 'sub'\n";
    check(
        &format!("{GATEWAY}{API}{jwt}"),
        "jwt: no policy counts by user or customer",
        &format!("{GATEWAY}{}{jwt}", by("user")),
    );
    // A token's plan decides by which quotas an address counts, and lists name customers.
    let by_plan = "[plans.free]\nquotas = '5/min'\n[[policy]]\nname = 'api'\nplan = 'free'\n";
    check(
        &format!("{GATEWAY}{by_plan}{jwt}"),
        "jwt: no policy counts by user or customer",
        &format!("{GATEWAY}{by_plan}{jwt}plan = 'plan'\n"),
    );
    let blocked = "[blocked]\ncustomers = ['acme']\n";
    check(
        &format!("{GATEWAY}{API}{jwt}customer = 'org'\n"),
        "jwt: no policy counts by user or customer",
        &format!("{GATEWAY}{blocked}{API}{jwt}customer = 'org'\n"),
    );
    check(
        &format!("{GATEWAY}{API}{keys}"),
        "key_source: no policy counts by api-key or customer",
        &format!("{GATEWAY}{blocked}{API}{keys}"),
    );
    check(
        &format!("{GATEWAY}{}", by("customer")),
        "policy[0].identity: customer never applies",
        &format!("{GATEWAY}{}{jwt}customer = 'org'\n", by("customer")),
    );
    let plans = "[plans.a]\nquotas = '1/s'\n[plans.b]\nquotas = '2/s'\n[[policy]]\nname = 'api'\n\
                 plan = 'a'\nidentity = ['api-key', 'ip']\n";
    let key = |digit: char, plan: &str| {
        let digest = String::from(digit).repeat(32);
        format!("[[api_key]]\ncustomer = 'acme'\ndigest = '{digest}'\nplan = '{plan}'\n")
    };
    check(
        &format!("{GATEWAY}{plans}{}{}", key('1', "a"), key('2', "b")),
        "api_key[1].plan: another key of customer \"acme\" has the plan a",
        &format!("{GATEWAY}{plans}{}{}", key('1', "b"), key('2', "b")),
    );
}

#[test]
fn sources_in_plaintext_are_warned_of() {
    let file = |tables: &str| format!("{GATEWAY}{API}identity = ['customer', 'ip']\n{tables}");
    let jwt = |jwks: &str| {
        file(&format!(
            "[[jwt]]\nissuer = 'a'\njwks = '{jwks}'\naudience = 'api'\n\
             algorithms = ['RS256']\ncustomer = 'org'\n"
        ))
    };
    let keys = |url: &str| file(&format!("[key_source]\nurl = '{url}'\n"));
    let database = |url: &str| format!("{}query = 'select digest, customer from k'\n", keys(url));
    let warning = "jwt[0].jwks: it is plaintext, so others on the network can name keys";
    check(&jwt("http://auth.example.com/keys"), warning, &jwt("https://auth.example.com/keys"));
    check(&jwt("http://10.0.0.7/keys"), warning, &jwt("http://127.0.0.1:9000/keys"));
    let warning = "key_source.url: it is plaintext, so others on the network can answer";
    check(&keys("http://keys.internal/{digest}"), warning, &keys("https://keys.internal/{digest}"));
    check(&keys("http://[fd00::7]/{digest}"), warning, &keys("http://[::1]:9000/{digest}"));
    let directory = slidegate_testbed::Directory::new();
    let token = format!("token_file = {:?}\n", directory.write("token", "hunter2hunter2"));
    check(
        &format!("{}{token}", keys("http://keys.internal/{digest}")),
        "key_source.url: it is plaintext, so others on the network can read the token",
        &format!("{}{token}", keys("http://localhost:9000/{digest}")),
    );
    let warning = "key_source.url: it does not require TLS";
    for (warned, unwarned) in [
        ("postgres://u@10.0.2.7/app", "postgres://u@10.0.2.7/app?sslmode=require"),
        ("postgres://u@db1:5432,db2:5432/app", "postgres://u@127.0.0.1/app"),
        ("postgres://u@db/app?sslmode=disable", "postgres://u@%2Fvar%2Frun%2Fpostgresql/app"),
    ] {
        check(&database(warned), warning, &database(unwarned));
    }
}

#[test]
fn the_port_of_another_protocol_is_warned_of() {
    let trace = |port: &str| format!("{GATEWAY}[trace]\notlp = 'http://c:{port}'\n{API}");
    check(&trace("4318"), "trace.otlp: 4318 is the usual port of OTLP over HTTP", &trace("4317"));
}

#[test]
fn a_header_that_no_peer_may_send_is_warned_of() {
    check(
        &format!("{GATEWAY}client_address = 'x-forwarded-for'"),
        "test.toml:3: gateway.client_address: x-forwarded-for is never believed",
        &format!("{GATEWAY}client_address = 'x-forwarded-for'\ntrusted_proxies = '10.0.0.0/8'"),
    );
    check(
        &format!("{GATEWAY}proxy_protocol = true"),
        "gateway.proxy_protocol: PROXY headers are never believed",
        &format!("{GATEWAY}proxy_protocol = true\ntrusted_proxies = '10.0.0.0/8'"),
    );
}

#[test]
fn proxies_without_a_source_and_proxies_that_are_everybody_are_warned_of() {
    check(
        &format!("{GATEWAY}trusted_proxies = '10.0.0.0/8'"),
        "gateway.trusted_proxies: all clients behind a trusted proxy share",
        &format!("{GATEWAY}trusted_proxies = '10.0.0.0/8'\nclient_address = 'x-real-ip'"),
    );
    check(
        &format!("{GATEWAY}trusted_proxies = '0.0.0.0/0'\nclient_address = 'x-real-ip'"),
        "everybody is trusted",
        &format!("{GATEWAY}trusted_proxies = '10.0.0.0/8'\nclient_address = 'x-real-ip'"),
    );
}

#[test]
fn headers_of_identities_plans_and_lists_without_proxies_are_warned_of() {
    let proxies = "trusted_proxies = '10.0.0.0/8'\nclient_address = 'x-real-ip'\n";
    for (text, expected) in [
        (
            format!("{API}identity = ['header:x-tenant', 'ip']\n"),
            "policy[0].identity: the gateway never believes the header x-tenant",
        ),
        (
            "[plans.free]\nquotas = '1/s'\n[[policy]]\nname = 'a'\n\
             plan = { header = 'x-plan', default = 'free' }\n"
                .to_owned(),
            "policy[0].plan: the gateway never believes the header x-plan",
        ),
        (
            "[exempt]\nheaders = { x-tenant = 'acme' }\n".to_owned(),
            "exempt.headers.x-tenant: the gateway never believes this header",
        ),
    ] {
        let untrusted = format!("{GATEWAY}{text}");
        check(&untrusted, expected, &format!("{GATEWAY}{proxies}{text}"));
        check(&untrusted, expected, &text);
    }
}

#[test]
fn quotas_that_do_not_matter_are_warned_of() {
    let policy = |quotas: &str| format!("[[policy]]\nname = 'a'\nquotas = {quotas}\n");
    let good = policy("['60/min', '10000/day']");
    check(
        &policy("['60/min', '50/day']"),
        "policy[0].quotas[0]: 60/min never matters: 50/day is tighter",
        &good,
    );
    check(
        &policy("['5/min', '10000/day']"),
        "policy[0].quotas[1]: 10000/day is never reached: 5/min allows at most 7200 in that time",
        &good,
    );
    check(&policy("['5/min', '7200/day']"), "is never reached", &policy("['5/min', '7199/day']"));
    let spaced = policy("['600/min', '1/100ms']");
    check(&policy("['601/min', '1/100ms']"), "601/min is never reached", &spaced);
    let plan = |quotas: &str| {
        format!("[plans.p]\nquotas = {quotas}\n[[policy]]\nname = 'a'\nplan = 'p'\n")
    };
    check(
        &plan("['60/min', '60/day']"),
        "plans.p.quotas[0]: 60/min never matters",
        &plan("['60/min', '61/day']"),
    );
}

#[test]
fn a_cost_that_only_one_request_can_pay_is_warned_of() {
    check(
        &format!("{API}cost = 3"),
        "policy[0].cost: one request fits 5/min, and 2 units",
        &format!("{API}cost = 2"),
    );
    assert!(file(&format!("{API}cost = 5")).unwrap().warnings.is_empty(), "all of it is meant");
}

#[test]
fn policies_that_never_apply_are_warned_of() {
    let policy = |path: &str| format!("{API}match = {{ path = '{path}' }}\n");
    let never = "policy[0]: it never takes part: its paths are exempt";
    check(
        &format!("{}[exempt]\npaths = ['/static/{{*rest}}']", policy("/static/{file}")),
        never,
        &format!("{}[exempt]\npaths = ['/static/logo.svg']", policy("/static/{file}")),
    );
    check(
        &format!("{}[blocked]\npaths = '/admin'", policy("/admin")),
        "its paths are blocked",
        &format!("{}[blocked]\npaths = '/admin'", policy("/admin/{*rest}")),
    );
    check(
        &format!("{API}match = {{ path = '/a' }}\nexempt = {{ paths = '/a' }}"),
        "its paths are exempt from it",
        &format!("{API}match = {{ paths = ['/a', '/b'] }}\nexempt = {{ paths = '/a' }}"),
    );
}

#[test]
fn readings_of_paths_that_are_switched_off_are_warned_of() {
    for (key, off, on, spelling) in [
        ("ignore_case", "false", "true", "/LOGIN"),
        ("encoded_slashes", "'keep'", "'decode'", "/x%2F..%2Flogin"),
        ("backslashes", "'keep'", "'slash'", "/x\\..\\login"),
        ("path_parameters", "'keep'", "'cut'", "/login;x=1"),
    ] {
        let file = |value| format!("{GATEWAY}{key} = {value}\n{API}");
        check(&file(off), &format!("gateway.{key}: {spelling} evades a policy"), &file(on));
    }
}

#[test]
fn duplicate_policies_are_warned_of() {
    let two = |second: &str| format!("{API}[[policy]]\nname = 'two'\nquotas = '{second}'\n");
    check(&two("5/60s"), "policy[1]: it says what policy api says already", &two("5/h"));
}

#[test]
fn plans_and_users_that_no_request_can_have_are_warned_of() {
    let plan = "[plans.gold]\nquotas = '1/s'\n";
    check(&format!("{plan}{API}"), "plans.gold: no policy uses plans", API);
    let two = format!(
        "{GATEWAY}{plan}[plans.free]\nquotas = '2/s'\n[[policy]]\nname = 'a'\nplan = 'free'\n"
    );
    check(&two, "plans.gold: no request can have this plan", &format!("{two}[decisions]\n"));
    let header = "user_header = 'x-user-id'\n";
    let proxies = "trusted_proxies = '10.0.0.0/8'\nclient_address = 'x-real-ip'\n";
    for (users, expected) in [
        (
            format!("{API}identity = 'user'\nanonymous = 'skip'\n"),
            "policy[0].identity: it never takes part: the gateway knows no users",
        ),
        (
            format!("{API}identity = ['user', 'ip']\n"),
            "policy[0].identity: user never applies: the gateway knows no users; say in \
             gateway.user_header which header",
        ),
        (
            format!("{API}exempt = {{ users = '1' }}\n"),
            "policy[0].exempt.users: the list never applies",
        ),
        (format!("{API}[exempt]\nusers = '1'\n"), "exempt.users: the list never applies"),
        (format!("{API}[blocked]\nusers = ['1', '2']\n"), "blocked.users: the list never applies"),
    ] {
        let unknown = format!("{GATEWAY}{proxies}{users}");
        check(&unknown, expected, &format!("{GATEWAY}{proxies}{header}{users}"));
        check(&unknown, expected, &format!("{unknown}[decisions]\n"));
        check(&unknown, expected, &users);
        check(
            &format!("{GATEWAY}{header}{users}"),
            "gateway.user_header: the gateway never believes the header x-user-id",
            &format!("{GATEWAY}{API}[blocked]\nusers = []\n"),
        );
    }
}

#[test]
fn punishments_that_hit_others_are_warned_of() {
    let ban =
        |identity: &str| format!("{API}identity = {identity}\nban = {{ after = '20/min' }}\n");
    check(
        &ban("'everyone'"),
        "policy[0].ban: one client can have all others banned: they share the account everyone",
        &ban("'ip'"),
    );
    let of_keys = |identity: &str| format!("unknown_keys = 'ignore'\n{}", ban(identity));
    let skipping = of_keys("['api-key']\nanonymous = 'skip'");
    assert_eq!(file(&skipping).unwrap().warnings.len(), 0, "there is no such account");
    let shared = file(&of_keys("['api-key']")).unwrap().warnings;
    let shared: Vec<String> = shared.iter().map(ToString::to_string).collect();
    assert!(shared.len() == 2 && shared[1].contains("the account anonymous"), "{shared:?}");
    let count = |identity: &str| format!("{API}identity = {identity}\ncount_denied = true\n");
    check(
        &count("'everyone'"),
        "policy[0].count_denied: one client can keep all others out",
        &count("'ip'"),
    );
}

#[test]
fn a_shadow_policy_that_bans_and_keys_of_a_local_one_are_warned_of() {
    let ban = format!("{API}ban = {{ after = '20/min' }}\n");
    check(&format!("{ban}shadow = true"), "policy[0].ban: it never bans", &ban);
    let template = "[store]\nurl = 'redis://a'\nkey_templates = { api = 'rl:<identity>' }\n";
    check(
        &format!("{API}scope = 'local'\n{template}"),
        "store.key_templates.api: it has no keys",
        &format!("{API}{template}"),
    );
}

#[test]
fn descriptors_that_no_client_can_send_are_warned_of() {
    let policy = format!("{API}match = {{ domain = 'edge', descriptors = {{ a = '*' }} }}\n");
    let expected = "policy[0]: it never takes part: there is no [rls]";
    check(&policy, expected, &format!("{policy}[rls]\nlisten = '127.0.0.1:8082'"));
}

#[test]
fn leases_without_redis_are_warned_of() {
    let leased = format!("{API}consistency = 'async'\n");
    check(
        &leased,
        "policy[0].consistency: it holds units longer and spares no call",
        &format!("{leased}[store]\nurl = 'redis://a'"),
    );
}

#[test]
fn secrets_in_the_file_are_warned_of() {
    let token = concat!("[admin]\ntoken_file = '", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml'");
    check("[admin]\ntoken = 'hunter2'", "test.toml:2: admin.token: a secret in the file", token);
    check(
        "[store]\nurl = 'redis://:hunter2@a'",
        "store.url: a password in the file",
        "[store]\nurl = 'redis://me@a'",
    );
    check(
        "[store]\nurl = 'unix:///s?pass=hunter2'",
        "store.url: a password in the file",
        "[store]\nurl = 'unix:///s'",
    );
    check(
        "[exempt]\napi_keys = 'hunter2'",
        "exempt.api_keys: secrets in the file",
        "[exempt]\nusers = 'ann'",
    );
    let key = "[plans.p]\nquotas = '1/s'\n[[policy]]\nname = 'a'\nplan = 'p'\nidentity = ['api-key', 'ip']\n\
         [[api_key]]\nplan = 'p'\n";
    let key_file = concat!("key_file = '", env!("CARGO_MANIFEST_DIR"), "/Cargo.toml'");
    check(
        &format!("{key}key = 'hunter2'"),
        "api_key[0]: a secret in the file",
        &format!("{key}{key_file}"),
    );
}

#[test]
fn a_candidate_that_is_looser_than_what_is_in_force_is_warned_of() {
    check(
        &format!("{API}candidate = {{ quotas = ['5/min', '9/h'] }}"),
        "policy[0].candidate: 5/min would deny no request that 5/min allows",
        &format!("{API}candidate = {{ quotas = ['4/min', '9/h'] }}"),
    );
}

#[test]
fn a_password_on_the_command_line_and_a_variable_that_is_not_used_are_warned_of() {
    let flags = |url: &str| Flags { redis: Some(url.parse().unwrap()), ..Flags::default() };
    let warnings = |loaded: crate::config::Loaded| loaded.warnings.len();
    assert_eq!(warnings(with("", flags("redis://:hunter2@a"), &[]).unwrap()), 1);
    assert_eq!(warnings(with("", flags("redis://a"), &[]).unwrap()), 0);
    let variable = [("REDIS_URL", "redis://:hunter2@a")];
    assert_eq!(warnings(with("", Flags::default(), &variable).unwrap()), 0);
    assert_eq!(warnings(with("[store]\nkind = 'memory'", Flags::default(), &variable).unwrap()), 1);
}

#[test]
fn policies_that_invented_credentials_evade_are_warned_of() {
    let api = |identity: &str| format!("{API}identity = {identity}\nanonymous = 'skip'\n");
    let guard = "[[policy]]\nname = 'address'\nscope = 'local'\nquotas = '50/s'\n";
    for (identity, expected) in [
        (
            "['api-key', 'ip']",
            "policy[0].identity: clients evade it by inventing values of api-key",
        ),
        (
            "['authorization']",
            "policy[0].identity: clients evade it by inventing values of authorization",
        ),
        ("['header:x-user', 'api-key']", "or list the keys in [[api_key]] or keys_file"),
    ] {
        let trusting = "[gateway]\nupstream = 'http://127.0.0.1:3000'\ntrusted_proxies = ['10.0.0.0/8']\n\
                        client_address = 'x-forwarded-for'\n";
        let evaded = format!("{trusting}{}", api(identity));
        check(&evaded, expected, &format!("{evaded}{guard}"));
    }
    check(
        &api("['api-key']"),
        "clients evade it",
        &format!("unknown_keys = 'refuse'\n{}", api("['api-key']")),
    );
}

#[test]
fn listed_keys_that_were_not_issued_are_warned_of() {
    let keys = "[plans.p]\nquotas = '1/s'\n[[policy]]\nname = 'a'\nidentity = ['api-key', 'ip']\n\
                plan = 'p'\n[[api_key]]\nplan = 'p'\nname = 'acme'\n\
                digest = 'a2e3ac06bb3a3d74863f2e5db2e3fcbe'\n";
    let warnings = |rest: &str| {
        let loaded = file(&format!("{keys}{rest}")).unwrap();
        loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for list in ["[blocked]", "[exempt]"] {
        let listed = |key: &str| warnings(&format!("{list}\napi_keys = ['acme', '{key}']\n"));
        assert_eq!(listed("a2e3ac06bb3a3d74863f2e5db2e3fcbe"), [""; 0], "names are no secrets");
        assert_eq!(listed("k-123").len(), 1, "a secret that is known");
        for unknown in ["globex", "00000000000000000000000000000000"] {
            let warnings = listed(unknown);
            let place =
                format!("{}.api_keys[1]: no API key has this name", &list[1..list.len() - 1]);
            assert!(warnings.iter().any(|warning| warning.contains(&place)), "{warnings:?}");
            assert!(!warnings.concat().contains(unknown), "it may be a secret: {warnings:?}");
        }
    }
    let of_policy =
        keys.replace("plan = 'p'\n[[api", "exempt = { api_keys = 'x' }\nplan = 'p'\n[[api");
    let warnings = file(&of_policy).unwrap().warnings;
    assert!(
        warnings
            .iter()
            .any(|warning| warning.to_string().contains("policy[0].exempt.api_keys: no API"))
    );
}

#[test]
fn visitors_who_share_one_account_are_warned_of() {
    let policy = |keys: &str| format!("{GATEWAY}user_header = 'x-user'\n{PROXIES}{API}{keys}\n");
    let expected =
        "policy[0].identity: all requests without user or header:x-tenant share one account";
    let by_user = "identity = ['user', 'header:x-tenant']";
    check(&policy(by_user), expected, &policy("identity = ['user', 'ip']"));
    check(&policy(by_user), expected, &policy(&format!("{by_user}\nanonymous = 'skip'")));
    check(
        &format!("{GATEWAY}{PROXIES}{API}identity = 'user'"),
        "policy[0].identity: all requests are one anonymous: the gateway knows no users",
        API,
    );
}

#[test]
fn lists_that_exempt_every_request_are_warned_of() {
    let root = |list: &str| format!("{API}[exempt]\n{list}\n");
    let own = |list: &str| format!("{API}exempt = {{ {list} }}\n");
    for (all, some, expected) in [
        ("networks = ['0.0.0.0/0']", "networks = ['10.0.0.0/8']", "every address is exempt"),
        ("networks = '::/0'", "networks = '::1/128'", "every address is exempt"),
        ("paths = ['/a', '/{*rest}']", "paths = ['/a/{*rest}', '/{b}']", "every path is exempt"),
    ] {
        check(&root(all), &format!("{expected} from all policies"), &root(some));
        check(&own(all), &format!("{expected} from it"), &own(some));
    }
}

#[test]
fn an_upstream_that_is_the_gateway_is_warned_of() {
    let gateway = |listen: &str, upstream: &str| {
        format!("[gateway]\nlisten = {listen}\nupstream = ['http://10.0.0.9:3000', '{upstream}']\n")
    };
    let expected = "gateway.upstream[1]: it is this gateway";
    for (listen, itself, other) in [
        ("'127.0.0.1:8080'", "http://127.0.0.1:8080", "http://127.0.0.1:3000"),
        ("'127.0.0.1:8080'", "http://localhost:8080", "http://localhost:80"),
        ("'0.0.0.0:80'", "http://127.0.0.1", "https://127.0.0.1"),
        ("['127.0.0.1:81', '[::]:82']", "http://[::1]:82", "http://10.0.0.8:82"),
    ] {
        check(&gateway(listen, itself), expected, &gateway(listen, other));
    }
    let route = |port: u16| {
        let route =
            format!("[[gateway.route]]\nprefix = '/a'\nupstream = 'http://127.0.0.1:{port}'");
        format!("{GATEWAY}{route}\n")
    };
    check(&route(8080), "gateway.route[0].upstream: it is this gateway", &route(8081));
}

#[test]
fn a_policy_for_get_that_head_evades_is_warned_of() {
    let policy = |methods: &str| format!("{API}match = {{ {methods} }}\n");
    let expected = "HEAD requests are not counted";
    check(&policy("method = 'GET'"), expected, &policy("method = ['GET', 'HEAD']"));
    check(
        &policy("methods = ['POST', 'GET']"),
        "policy[0].match.methods[1]: HEAD requests",
        &policy("method = 'POST'"),
    );
}

#[test]
fn plans_of_keys_that_share_the_account_of_their_address_are_warned_of() {
    let policy = |identity: &str| {
        format!(
            "[plans.p]\nquotas = '1/s'\n[[policy]]\nname = 'a'\nplan = 'p'\n{identity}\n\
             [[api_key]]\nplan = 'p'\ndigest = 'a2e3ac06bb3a3d74863f2e5db2e3fcbe'\n"
        )
    };
    let by_key = policy("identity = ['api-key', 'ip']");
    check(&policy("identity = 'ip'"), "policy[0].identity: API keys have plans", &by_key);
    check(&policy(""), "policy[0].identity: API keys have plans", &by_key);
}

#[test]
fn a_json_template_that_is_sent_as_text_is_warned_of() {
    let refusal = |keys: &str| format!("[refusal]\n{keys}\n");
    for json in [r#"{"error":"slow down"}"#, r#" { "wait": {retry_after} }"#, r#"[{"a":1}]"#] {
        check(
            &refusal(&format!("template = '{json}'")),
            "refusal.template: this is JSON, sent as text",
            &refusal(&format!("template = '{json}'\ncontent_type = 'application/json'")),
        );
    }
    let text = refusal("template = '{retry_after} seconds'");
    assert!(file(&text).unwrap().warnings.is_empty(), "a placeholder");
}

#[test]
fn keys_about_responses_where_none_is_seen_are_warned_of() {
    let login = format!("{API}count = {{ status = [401] }}\n");
    let decisions = "[decisions]\nlisten = '127.0.0.1:1'\n";
    let rls = "[rls]\nlisten = '127.0.0.1:2'\n";
    let gateway = format!("{GATEWAY}{login}");
    check(
        &format!("{GATEWAY}{decisions}{login}"),
        "test.toml:8: policy[0].count: count has no effect at [decisions], which never sees a \
         response: what is held there stays spent, unless the caller settles it",
        &gateway,
    );
    check(&login, "count has no effect at [decisions]", &gateway);
    check(
        &format!(
            "{GATEWAY}{rls}{API}refund = {{ status = '5xx' }}\ncost = {{ response_header = 'x-cost' }}\n"
        ),
        "policy[0].refund: refund and cost have no effect at [rls], which never sees a response: \
         what is held there stays spent",
        &format!("{GATEWAY}{rls}{API}"),
    );
    check(
        &format!("{GATEWAY}{decisions}{rls}{login}"),
        "count has no effect at [decisions] and [rls]",
        &format!("{GATEWAY}[resp]\nlisten = '127.0.0.1:3'\n{login}"),
    );
    check(
        &format!("[resp]\nlisten = '127.0.0.1:3'\n{login}"),
        "count has no effect at [resp]",
        &gateway,
    );
}

#[test]
fn one_unit_held_for_a_response_that_costs_many_is_warned_of() {
    let tokens = |quotas: &str, hold: &str| {
        let cost = format!("cost = {{ response_json = 'usage.total_tokens'{hold} }}\n");
        format!("{GATEWAY}[[policy]]\nname = 'tokens'\nquotas = {quotas}\n{cost}")
    };
    check(
        &tokens("['100000/min', '2000000/day']", ""),
        "policy[0].cost: one unit is held until the response",
        &tokens("['100000/min', '2000000/day']", ", hold = 1"),
    );
    check(
        &tokens("'1001/min'", ""),
        "one unit is held until the response",
        &tokens("['5/s', '100000/day']", ""),
    );
}

#[test]
fn what_is_said_of_the_standing_path_is_warned_of() {
    let upstream = "[gateway]\nupstream = 'http://127.0.0.1:3000'\n[standing]\npath = '/limits'\n";
    for (text, expected) in [
        ("[exempt]\npaths = ['/limits']\n", "exempt.paths[0]: it needs no exemption"),
        (
            "[[policy]]\nname = 'a'\nquotas = '5/min'\nmatch = { path = '/limits' }\n",
            "policy[0]: it never takes part: [standing] answers its path",
        ),
        (
            "[[gateway.route]]\nprefix = '/limits'\nupstream = 'http://127.0.0.1:3001'\n",
            "gateway.route[0].prefix: [standing] answers this path itself",
        ),
    ] {
        check(
            &format!("{upstream}{text}"),
            expected,
            &format!("{upstream}{}", text.replace("/limits", "/other")),
        );
    }
}
