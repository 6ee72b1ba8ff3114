//! From facts to charges: who is charged, for what, and what is refused when policies are built.

use std::net::IpAddr;
use std::num::NonZeroU32;

use crate::support::now;
use http::header::COOKIE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use slidegate::policy::{ApiKey, BadRequest, Prefixes, UnknownKeys};
use slidegate::{
    AccessList, Block, Decision, Facts, Gate, Identity, MemoryStore, OnStoreError, Plan, Policies,
    Policy, PolicyErrors, Quota, Scope, Source, Verdict,
};

const CLIENT: &str = "203.0.113.7";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn headers(list: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    headers
}

fn gate(policies: slidegate::policy::PoliciesBuilder) -> Gate {
    Gate::new(policies.build().unwrap(), MemoryStore::new())
}

fn only(policy: Policy) -> Gate {
    gate(Policies::builder().policy(policy))
}

fn identity_of(decision: &Decision) -> String {
    decision.policies()[0].identity.to_string()
}

fn allowed(gate: &Gate, facts: Facts<'_>) -> bool {
    gate.decide_now(&facts).unwrap().is_allowed()
}

#[test]
fn policies_match_by_method_and_path() {
    let gate = only(
        Policy::new("shorten")
            .method(Method::POST)
            .path("/shorten")
            .path("/users/{id}/links")
            .path("/static/{*rest}")
            .quota(Quota::per_minute(10)),
    );
    for (method, path, matches) in [
        (Method::POST, "/shorten", true),
        (Method::POST, "/shorten?x=1", true),
        (Method::POST, "/users/7/links", true),
        (Method::POST, "/static/a/b/c", true),
        (Method::GET, "/shorten", false),
        (Method::POST, "/shortened", false),
        (Method::POST, "/shorten/", true),
        (Method::POST, "/users/7", false),
        (Method::POST, "/static", false),
    ] {
        let facts = Facts::new(&method, path).client(ip(CLIENT));
        let decision = gate.decide_now(&facts).unwrap();
        assert_eq!(!decision.policies().is_empty(), matches, "{method} {path}");
        assert!(decision.is_allowed());
    }
}

#[test]
fn of_several_sources_the_first_present_identity_wins() {
    let sources = [Source::User, Source::ApiKey, Source::Authorization, Source::ip()];
    let gate = only(Policy::new("api").identity(sources).quota(Quota::per_minute(10)));
    let keyed = headers(&[("x-api-key", "k"), ("authorization", "Bearer t")]);
    let bearer = headers(&[("authorization", "Bearer t")]);
    let base = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    for (facts, kind) in [
        (base.headers(&keyed).user("42"), "user"),
        (base.headers(&keyed).user(""), "api-key"),
        (base.headers(&keyed), "api-key"),
        (base.headers(&bearer), "authorization"),
        (base, "ip"),
        (Facts::new(&Method::GET, "/"), "anonymous"),
    ] {
        let decision = gate.decide_now(&facts).unwrap();
        assert_eq!(decision.policies()[0].identity.kind(), kind);
    }
}

#[test]
fn secrets_never_show() {
    let gate = only(
        Policy::new("api")
            .identity([Source::ApiKey, Source::Authorization])
            .quota(Quota::per_minute(1)),
    );
    for secret in [("x-api-key", "sk-live-hunter2"), ("authorization", "Basic aHVudGVyMg==")] {
        let headers = headers(&[secret]);
        let facts = Facts::new(&Method::GET, "/").headers(&headers);
        let decision = gate.decide_now(&facts).unwrap();
        let seen = format!("{decision:?} {} {:?}", gate.explain(&facts), gate.explain(&facts));
        assert!(!seen.contains(secret.1), "{seen}");
    }
}

#[test]
fn no_identity_is_one_shared_identity_and_no_free_pass() {
    let gate = only(Policy::new("api").identity([Source::User]).quota(Quota::per_minute(2)));
    let strangers = [ip("192.0.2.1"), ip("192.0.2.2"), ip("192.0.2.3")];
    let passed = strangers.map(|a| allowed(&gate, Facts::new(&Method::GET, "/").client(a)));
    assert_eq!(passed, [true, true, false]);
}

#[test]
fn a_named_header_counts_only_from_a_trusted_peer() {
    let tenant = || Source::Header(HeaderName::from_static("x-tenant"));
    let gate =
        only(Policy::new("api").identity([tenant(), Source::ip()]).quota(Quota::per_minute(9)));
    let acme = headers(&[("x-tenant", "acme")]);
    let facts = Facts::new(&Method::GET, "/").client(ip(CLIENT)).headers(&acme);
    assert_eq!(identity_of(&gate.decide_now(&facts).unwrap()), "ip:203.0.113.7");
    assert_eq!(identity_of(&gate.decide_now(&facts.headers_trusted()).unwrap()), "x-tenant:acme");
}

fn by_user_header() -> slidegate::policy::PoliciesBuilder {
    let api = Policy::new("api").identity([Source::User, Source::ip()]);
    Policies::builder()
        .user_header(HeaderName::from_static("x-user-id"))
        .policy(api.quota(Quota::per_minute(9)))
}

#[test]
fn a_trusted_peers_user_header_names_the_user_unless_the_application_does() {
    let gate = gate(by_user_header());
    for (value, identity) in [
        ("42", "user:42"),
        ("  42\t", "user:42"),
        ("", "ip:203.0.113.7"),
        (" ", "ip:203.0.113.7"),
        ("x-user-id:42", "user:x-user-id:42"),
    ] {
        let headers = headers(&[("x-user-id", value)]);
        let facts = Facts::new(&Method::GET, "/").client(ip(CLIENT)).headers(&headers);
        assert_eq!(identity_of(&gate.decide_now(&facts).unwrap()), "ip:203.0.113.7", "{value:?}");
        let facts = facts.headers_trusted();
        assert_eq!(identity_of(&gate.decide_now(&facts).unwrap()), identity, "{value:?}");
        assert!(gate.explain(&facts).to_string().contains(identity), "{}", gate.explain(&facts));
        assert_eq!(identity_of(&gate.decide_now(&facts.user("7")).unwrap()), "user:7");
        assert_eq!(identity_of(&gate.decide_now(&facts.user("")).unwrap()), identity, "{value:?}");
    }
}

#[test]
fn a_user_header_that_is_no_text_is_a_separate_user() {
    let gate = gate(by_user_header());
    let identity = |value: &[u8]| {
        let mut headers = HeaderMap::new();
        headers.insert("x-user-id", HeaderValue::from_bytes(value).unwrap());
        let facts = Facts::new(&Method::GET, "/").headers(&headers).headers_trusted();
        identity_of(&gate.decide_now(&facts).unwrap())
    };
    let [one, other] = [&b"\xff\xfe"[..], b"\xff\xff"].map(identity);
    assert!(one.starts_with("user:~") && other.starts_with("user:~"), "{one} {other}");
    assert_ne!(one, other);
}

#[test]
fn a_repeated_user_header_is_refused_and_does_not_evade_a_list() {
    let gate = gate(
        by_user_header()
            .blocked(AccessList::new().user("mallory"))
            .exempt(AccessList::new().user("operator")),
    );
    let base = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    for list in [["mallory", "ann"], ["ann", "mallory"], ["", " mallory "]] {
        let headers = headers(&list.map(|id| ("x-user-id", id)));
        let facts = base.headers(&headers).headers_trusted();
        let name = HeaderName::from_static("x-user-id");
        assert_eq!(gate.check(&facts), Err(BadRequest::RepeatedHeader { name }));
        let verdict = gate.decide_now(&facts).unwrap().verdict();
        assert_eq!(verdict, Verdict::Block(Block::Listed), "{list:?}");
        let named = gate.decide_now(&facts.user("ann")).unwrap();
        assert_eq!(identity_of(&named), "user:ann", "the application's word is the only one");
    }
    let doubtful = headers(&[("x-user-id", "operator"), ("x-user-id", "ann")]);
    let facts = base.headers(&doubtful).headers_trusted();
    assert_eq!(identity_of(&gate.decide_now(&facts).unwrap()), "ip:203.0.113.7");
}

#[test]
fn a_header_with_credentials_cannot_name_the_user() {
    for name in ["x-api-key", "authorization", "proxy-authorization", "cookie"] {
        let errors = by_user_header().user_header(HeaderName::from_static(name)).build();
        let said = errors.unwrap_err().to_string();
        let expected = format!("policies: user_header = \"{name}\": this header carries a secret");
        assert!(said.starts_with(&expected), "{said}");
    }
}

#[test]
fn a_cookie_in_several_lines_is_one_identity() {
    let tenant = Policy::new("all").identity([Source::Header(COOKIE), Source::ip()]);
    let gate = only(tenant.quota(Quota::per_minute(1)));
    let allowed = |lines: &[&str]| {
        let lines: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
        let headers = headers(&lines);
        let facts = Facts::new(&Method::GET, "/").headers(&headers).headers_trusted();
        assert_eq!(gate.check(&facts), Ok(()));
        gate.decide_now(&facts).unwrap().is_allowed()
    };
    assert!(allowed(&["a=1; b=2"]));
    for same in [&["a=1", "b=2"][..], &[" a=1 ", "b=2\t"], &["", "a=1", "b=2"]] {
        assert!(!allowed(same), "{same:?}");
    }
    assert!(allowed(&["a=1", "b=3"]));
    assert!(!allowed(&["a=1; b=3"]));
}

#[test]
fn splitting_a_cookie_does_not_evade_a_list() {
    let blocked = AccessList::new().header(COOKIE, "a=1; b=2");
    let policies = Policies::builder().blocked(blocked.clone()).build().unwrap();
    let listed = Policies::builder().exempt(blocked).build().unwrap();
    for lines in [&["a=1; b=2"][..], &["a=1", "b=2"], &["a=1; b=2", "c=3"]] {
        let lines: Vec<_> = lines.iter().map(|line| ("cookie", *line)).collect();
        let headers = headers(&lines);
        let facts = Facts::new(&Method::GET, "/").headers(&headers).headers_trusted();
        assert!(policies.explain(&facts).blocked.is_some(), "{lines:?}");
        let is_whole = !lines.contains(&("cookie", "c=3"));
        assert_eq!(listed.explain(&facts).exempt.is_some(), is_whole, "{lines:?}");
        let untrusted = Facts::new(&Method::GET, "/").headers(&headers);
        assert!(policies.explain(&untrusted).blocked.is_none());
    }
}

#[test]
fn a_repeated_header_is_no_identity() {
    let gate = only(
        Policy::new("api").identity([Source::ApiKey, Source::ip()]).quota(Quota::per_minute(9)),
    );
    let twice = headers(&[("x-api-key", "a"), ("x-api-key", "b")]);
    let empty = headers(&[("x-api-key", "")]);
    for headers in [&twice, &empty] {
        let facts = Facts::new(&Method::GET, "/").client(ip(CLIENT)).headers(headers);
        assert_eq!(identity_of(&gate.decide_now(&facts).unwrap()), "ip:203.0.113.7");
    }
}

#[test]
fn addresses_count_by_prefix_and_mapped_ones_as_ipv4() {
    let wide = Prefixes::default().with_v4(24).unwrap().with_v6(48).unwrap();
    for (prefixes, address, identity) in [
        (Prefixes::default(), "203.0.113.7", "ip:203.0.113.7"),
        (Prefixes::default(), "::ffff:203.0.113.7", "ip:203.0.113.7"),
        (Prefixes::default(), "2001:db8:1:2:3:4:5:6", "ip:2001:db8:1:2::/64"),
        (wide, "203.0.113.7", "ip:203.0.113.0/24"),
        (wide, "::ffff:203.0.113.7", "ip:203.0.113.0/24"),
        (wide, "2001:db8:1:2:3:4:5:6", "ip:2001:db8:1::/48"),
    ] {
        let gate =
            only(Policy::new("api").identity([Source::Ip(prefixes)]).quota(Quota::per_minute(9)));
        let facts = Facts::new(&Method::GET, "/").client(ip(address));
        assert_eq!(identity_of(&gate.decide_now(&facts).unwrap()), identity);
    }
}

#[test]
fn everyone_shares_one_budget() {
    let gate = only(Policy::new("all").identity([Source::Everyone]).quota(Quota::per_minute(2)));
    let passed = ["192.0.2.1", "192.0.2.2", "192.0.2.3"]
        .map(|a| allowed(&gate, Facts::new(&Method::GET, "/").client(ip(a))));
    assert_eq!(passed, [true, true, false]);
}

fn plans() -> slidegate::policy::PoliciesBuilder {
    Policies::builder()
        .plan(Plan::new("free", [Quota::per_minute(60)]).upgrade_url("https://example.com/up"))
        .plan(Plan::new("pro", [Quota::per_minute(600)]))
        .api_key("key-of-a-pro", "pro")
        .policy(
            Policy::new("api")
                .identity([Source::User, Source::ip()])
                .plan_header(HeaderName::from_static("x-plan"), "free"),
        )
}

#[test]
fn a_plan_comes_from_the_application_or_the_key_or_a_trusted_header() {
    let gate = gate(plans());
    let says_pro = headers(&[("x-plan", "pro")]);
    let key = headers(&[("x-api-key", "key-of-a-pro"), ("x-plan", "free")]);
    let base = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    for (facts, plan, why) in [
        (base, "free", "the default"),
        (base.plan("pro"), "pro", "the application says so"),
        (base.plan("no-such-plan"), "free", "an unknown plan is the default one"),
        (base.headers(&says_pro), "free", "a header from anybody is not believed"),
        (base.headers(&says_pro).headers_trusted(), "pro", "from a trusted peer it is"),
        (base.headers(&key).headers_trusted(), "pro", "the key outweighs the header"),
        (base.headers(&key).plan("free"), "free", "the application outweighs the key"),
    ] {
        let decision = gate.decide_now(&facts).unwrap();
        let found = decision.policies()[0].plan.as_deref().unwrap();
        assert_eq!(&*found.name, plan, "{why}");
        let upgrade = (plan == "free").then_some("https://example.com/up");
        assert_eq!(found.upgrade_url.as_deref(), upgrade);
    }
}

#[test]
fn a_decision_and_an_explanation_report_that_the_plan_is_unknown() {
    let gate = gate(plans());
    let gold = headers(&[("x-plan", "gold")]);
    let bytes = [("x-plan".parse().unwrap(), HeaderValue::from_bytes(b"\xff").unwrap())];
    let bytes = HeaderMap::from_iter(bytes);
    let empty = headers(&[("x-plan", "")]);
    let base = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    for (facts, unknown) in [
        (base, None),
        (base.plan("pro"), None),
        (base.plan(""), None),
        (base.plan("gold"), Some("gold")),
        (base.plan("pro").headers(&gold).headers_trusted(), None),
        (base.headers(&gold), None),
        (base.headers(&gold).headers_trusted(), Some("gold")),
        (base.headers(&bytes).headers_trusted(), Some("\u{fffd}")),
        (base.headers(&empty).headers_trusted(), None),
    ] {
        let decision = gate.decide_now(&facts).unwrap();
        assert_eq!(decision.policies()[0].plan_unknown, unknown.is_some(), "{unknown:?}");
        let explanation = gate.explain(&facts);
        assert!(explanation.policies[0].identity.is_some(), "{explanation}");
        let note = unknown.map(|name| format!("(the default, as there is no plan {name:?})"));
        assert_eq!(explanation.to_string().contains("the default"), note.is_some());
        assert!(note.is_none_or(|note| explanation.to_string().contains(&note)), "{explanation}");
    }
}

#[test]
fn exempt_requests_are_charged_nothing_and_blocked_ones_never_pass() {
    let gate = gate(
        Policies::builder()
            .policy(Policy::new("api").quota(Quota::per_minute(1)))
            .exempt(
                AccessList::new()
                    .path("/healthz")
                    .network("10.0.0.0/8".parse().unwrap())
                    .api_key("internal")
                    .user("root"),
            )
            .blocked(AccessList::new().network("198.51.100.0/24".parse().unwrap()).user("mallory")),
    );
    let internal = headers(&[("x-api-key", "internal")]);
    let base = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    let health = Facts::new(&Method::GET, "/healthz").client(ip(CLIENT));
    let inside = base.client(ip("::ffff:10.1.2.3"));
    for facts in [health, inside, base.headers(&internal), base.user("root")] {
        for _ in 0..3 {
            let decision = gate.decide_now(&facts).unwrap();
            assert!(decision.is_allowed() && decision.policies().is_empty());
        }
    }
    for facts in [base.client(ip("198.51.100.9")), base.user("mallory"), health.user("mallory")] {
        let decision = gate.decide_now(&facts).unwrap();
        assert_eq!(decision.verdict(), Verdict::Block(Block::Listed), "blocked outweighs exempt");
    }
    assert!(allowed(&gate, base), "none of that was charged");
    assert!(!allowed(&gate, base));
}

#[test]
fn a_policy_has_its_own_exemptions() {
    let gate = gate(
        Policies::builder()
            .policy(
                Policy::new("tight")
                    .quota(Quota::per_minute(1))
                    .exempt(AccessList::new().user("ann")),
            )
            .policy(Policy::new("wide").quota(Quota::per_minute(100))),
    );
    let ann = Facts::new(&Method::GET, "/").client(ip(CLIENT)).user("ann");
    for _ in 0..3 {
        let decision = gate.decide_now(&ann).unwrap();
        assert!(decision.is_allowed());
        assert_eq!(decision.policies().len(), 1, "the other policy still counts her");
    }
}

#[test]
fn costs_come_from_the_policy_or_the_request() {
    let gate = gate(
        Policies::builder()
            .policy(Policy::new("fixed").cost(2).quota(Quota::per_minute(100)))
            .policy(Policy::new("open").quota(Quota::per_minute(100))),
    );
    let facts = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    let left = |facts| {
        let decision = gate.decide_now(&facts).unwrap();
        [0, 1].map(|i: usize| decision.policies()[i].standings[0].remaining())
    };
    assert_eq!(left(facts), [98, 99]);
    assert_eq!(left(facts.cost(NonZeroU32::new(10).unwrap())), [96, 89]);
}

#[test]
fn a_local_policy_counts_requests_unless_it_follows_their_cost() {
    let flood = |name| Policy::new(name).scope(Scope::Local).quota(Quota::per_minute(50));
    let gate = gate(
        Policies::builder()
            .policy(flood("flood"))
            .policy(flood("three").cost(3))
            .policy(flood("following").request_cost())
            .policy(Policy::new("api").quota(Quota::per_minute(100))),
    );
    let facts = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    let left = |decision: Decision| -> Vec<u32> {
        decision.policies().iter().map(|own| own.standings[0].remaining()).collect()
    };
    let ten = facts.cost(NonZeroU32::new(10).unwrap());
    assert_eq!(left(gate.decide_now(&ten).unwrap()), [49, 47, 40, 90]);
    assert_eq!(left(gate.decide_now(&facts).unwrap()), [48, 44, 39, 89], "one unit by default");
    let costs: Vec<String> = gate.policies().iter().map(|policy| policy.cost.to_string()).collect();
    assert_eq!(costs, ["1", "3", "request", "request"]);

    // More than the guard allows in a whole window is no reason to refuse a request.
    let gate = only(Policy::new("flood").scope(Scope::Local).quota(Quota::per_second(5)));
    assert!(allowed(&gate, ten));
    let gate =
        only(Policy::new("flood").scope(Scope::Local).quota(Quota::per_second(5)).request_cost());
    assert!(!allowed(&gate, ten));
}

#[test]
fn a_refund_of_a_dear_request_gives_back_what_each_policy_took() {
    let gate = gate(
        Policies::builder()
            .policy(Policy::new("flood").scope(Scope::Local).quota(Quota::per_minute(50)))
            .policy(Policy::new("api").quota(Quota::per_minute(100))),
    );
    let facts = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    let ten = facts.cost(NonZeroU32::new(10).unwrap());
    let _ = gate.decide_now(&facts).unwrap();
    let decision = gate.decide_now(&ten).unwrap();
    now(gate.refund(&decision)).unwrap();
    let after = gate.peek_now(&facts).unwrap();
    let left: Vec<u32> = after.policies().iter().map(|own| own.standings[0].remaining()).collect();
    assert_eq!(left, [49, 99]);
}

#[test]
fn a_request_that_costs_more_than_a_quota_can_never_pass() {
    let gate = gate(
        Policies::builder()
            .policy(Policy::new("enforced").quota(Quota::per_minute(10)))
            .policy(Policy::new("watching").quota(Quota::per_minute(5)).shadow()),
    );
    let facts = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    let cost = |units| facts.cost(NonZeroU32::new(units).unwrap());
    assert_eq!(
        gate.decide_now(&cost(11)).unwrap().verdict(),
        Verdict::Block(Block::CostAboveUnits)
    );
    assert!(allowed(&gate, cost(10)), "it took nothing, and a shadow policy blocks no request");
}

#[test]
fn an_explanation_names_the_policies_that_apply_and_why_others_do_not() {
    let gate = gate(
        plans()
            .policy(
                Policy::new("login")
                    .method(Method::POST)
                    .path("/login")
                    .quota(Quota::per_minute(5))
                    .on_store_error(OnStoreError::Deny),
            )
            .policy(Policy::new("flood").scope(Scope::Local).quota(Quota::per_second(50)).shadow())
            .exempt(AccessList::new().path("/healthz")),
    );
    let facts = Facts::new(&Method::GET, "/login").client(ip(CLIENT));
    let explanation = gate.explain(&facts);
    let charged = explanation.policies.iter().map(|policy| policy.identity.is_some());
    assert_eq!(charged.collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(
        explanation.to_string(),
        "api: takes 1 unit of 60/min from ip:203.0.113.7, plan free, having no user\n\
         login: not for this method, only POST\n\
         flood: takes 1 unit of 50/s from ip:203.0.113.7, in this process, shadow\n"
    );
    let posted = Facts::new(&Method::POST, "/logout").client(ip(CLIENT));
    assert!(gate.explain(&posted).to_string().contains("login: not for this path, only /login"));
    let health = Facts::new(&Method::GET, "/healthz");
    assert_eq!(gate.explain(&health).to_string(), "exempt for its path\n");
    let decision = gate.decide_now(&facts).unwrap();
    assert_eq!(decision.policies()[0].standings[0].remaining(), 50 - 1, "explain spends nothing");
}

#[test]
fn everything_that_is_wrong_is_reported_together() {
    let errors = Policies::builder()
        .plan(Plan::new("free", Vec::<Quota>::new()))
        .plan(Plan::new("bad name", [Quota::per_minute(1)]))
        .policy(Policy::new("").quota(Quota::per_minute(1)))
        .policy(Policy::new("twice").quota(Quota::per_minute(1)))
        .policy(Policy::new("twice").quota(Quota::per_minute(1)))
        .policy(Policy::new("dear").quota(Quota::per_minute(5)).quota(Quota::per_day(100)).cost(6))
        .policy(Policy::new("gratis").quota(Quota::per_minute(5)).cost(0))
        .policy(Policy::new("empty"))
        .policy(Policy::new("same").quota(Quota::per_minute(5)).quota(Quota::per_minute(6)))
        .policy(Policy::new("lost").plans("gold"))
        .policy(Policy::new("paths").path("no-slash").path("/{open").quota(Quota::per_minute(1)))
        .policy(Policy::new("nobody").identity([]).quota(Quota::per_minute(1)))
        .exempt(AccessList::new().path("{*x}"))
        .api_key("k", "silver")
        .build()
        .unwrap_err();
    let said = errors.to_string();
    for expected in [
        "plan \"free\": quotas = \"\": no quotas: expected at least one, such as 60/min",
        "plan \"bad name\": name = \"bad name\": \"bad name\" is not a name: expected",
        "policy \"\": name = \"\": \"\" is not a name: expected",
        "policy \"twice\": name = \"twice\": another policy has this name",
        "policy \"dear\": cost = \"6\": no request could ever pass a quota of 5 units",
        "policy \"gratis\": cost = \"0\": expected at least 1",
        "policy \"empty\": quotas = \"\": no quotas: expected at least one, such as 60/min",
        "policy \"same\": quotas = \"5/min, 6/min\": 5/min and 6/min have the same window",
        "policy \"lost\": plan = \"gold\": there is no such plan",
        "policy \"paths\": path = \"no-slash\": expected a path that starts with /",
        "policy \"paths\": path = \"/{open\": ",
        "policy \"nobody\": identity = \"[]\": expected at least one identity source, such as ip",
        "exempt: path = \"{*x}\": expected a path that starts with /",
        "plan = \"silver\": there is no such plan",
    ] {
        assert!(said.contains(expected), "{expected}\nnot in\n{said}");
    }
    assert_eq!(errors.as_slice().len(), 14, "{said}");
    assert!(!said.contains("api-key:k"), "not even a wrong key shows");
}

#[test]
fn a_cost_must_fit_every_plan() {
    let built = plans().policy(Policy::new("dear").cost(100).plans("pro")).build();
    let said = built.map_err(|errors: PolicyErrors| errors.to_string()).unwrap_err();
    assert!(said.contains("a quota of 60 units"), "{said}");
}

#[test]
fn a_second_header_neither_evades_the_blocked_list_nor_gains_an_exemption() {
    let gate = gate(
        Policies::builder()
            .policy(Policy::new("api").quota(Quota::per_minute(1)))
            .exempt(AccessList::new().api_key("internal"))
            .blocked(AccessList::new().api_key("stolen").authorization("Bearer stolen")),
    );
    let base = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    for list in [
        [("x-api-key", "stolen"), ("x-api-key", "x")],
        [("x-api-key", "x"), ("x-api-key", "stolen")],
        [("authorization", "Bearer x"), ("authorization", "Bearer stolen")],
    ] {
        let headers = headers(&list);
        let decision = gate.decide_now(&base.headers(&headers)).unwrap();
        assert_eq!(decision.verdict(), Verdict::Block(Block::Listed));
    }
    let doubtful = headers(&[("x-api-key", "internal"), ("x-api-key", "x")]);
    assert_eq!(gate.decide_now(&base.headers(&doubtful)).unwrap().policies().len(), 1);
}

#[test]
fn patterns_and_methods_that_no_request_has_are_errors_with_what_was_meant() {
    let build = |policy: Policy, exempt: AccessList, blocked: AccessList| {
        let builder = Policies::builder().policy(policy.quota(Quota::per_minute(1)));
        let errors = builder.exempt(exempt).blocked(blocked).build().unwrap_err();
        let [error] = errors.as_slice() else { panic!("{errors}") };
        error.to_string()
    };
    let none = AccessList::new;
    let slip = Method::from_bytes(b"GTE").unwrap();
    for (said, expected) in [
        (
            build(Policy::new("api").path("/api/*"), none(), none()),
            "policy \"api\": path = \"/api/*\": * and : are no wildcards here: did you mean \"/api/{*rest}\"?",
        ),
        (
            build(Policy::new("api").exempt(none().path("/users/:id")), none(), none()),
            "policy \"api\": exempt = \"/users/:id\": * and : are no wildcards here: did you mean \"/users/{id}\"?",
        ),
        (
            build(Policy::new("api"), none().path("/a/*/b"), none()),
            "exempt: path = \"/a/*/b\": * and : are no wildcards here: did you mean \"/a/{segment2}/b\"?",
        ),
        (
            build(Policy::new("api"), none(), none().path("/:tenant/private")),
            "blocked: path = \"/:tenant/private\": * and : are no wildcards here: did you mean \"/{tenant}/private\"?",
        ),
        (
            build(Policy::new("api").method(slip), none(), none()),
            "policy \"api\": method = \"GTE\": one letter away from GET: did you mean \"GET\"?",
        ),
    ] {
        assert_eq!(said, expected);
    }
    let extension = Method::from_bytes(b"PURGE").unwrap();
    let purge = Policy::new("purge").method(extension).quota(Quota::per_minute(1));
    assert!(Policies::builder().policy(purge).build().is_ok());
}

/// Policies that know one API key, `issued`.
fn with_a_key(sources: &[Source]) -> slidegate::policy::PoliciesBuilder {
    Policies::builder()
        .plan(Plan::new("free", [Quota::per_minute(5)]))
        .plan(Plan::new("pro", [Quota::per_minute(50)]))
        .api_key("issued", "pro")
        .policy(Policy::new("api").identity(sources.to_vec()).plans("free"))
}

fn request_with_key<'a>(headers: &'a HeaderMap) -> Facts<'a> {
    Facts::new(&Method::GET, "/").client(ip(CLIENT)).headers(headers)
}

#[test]
fn a_key_that_is_not_listed_is_no_identity() {
    let named: HeaderName = "x-api-key".parse().unwrap();
    for key_source in [Source::ApiKey, Source::Header(named)] {
        let gate = gate(with_a_key(&[key_source, Source::ip()]));
        let passed = |key: &str, requests: usize| {
            let headers = headers(&[("x-api-key", key)]);
            let facts = request_with_key(&headers).headers_trusted();
            (0..requests).filter(|_| allowed(&gate, facts)).count()
        };
        let invented: usize = (0..100).map(|n| passed(&format!("invented-{n}"), 1)).sum();
        assert_eq!(invented, 5, "all of them are the address's own quota");
        assert_eq!(gate.store().stats().accounts, 1);
        assert_eq!(passed("issued", 100), 50);
        assert_eq!(gate.store().stats().accounts, 2);
    }
}

#[test]
fn without_another_source_unknown_keys_share_the_anonymous_account() {
    let gate = gate(with_a_key(&[Source::ApiKey]));
    let headers = headers(&[("x-api-key", "invented")]);
    let decision = gate.decide_now(&request_with_key(&headers)).unwrap();
    assert_eq!(identity_of(&decision), "anonymous");
    let explained = gate.policies().explain(&request_with_key(&headers)).to_string();
    assert_eq!(
        explained,
        "api: takes 1 unit of 5/min from anonymous, plan free, having no api-key (the API key is \
         unknown)\n"
    );
}

#[test]
fn each_unknown_key_can_have_its_own_account() {
    let invented = headers(&[("x-api-key", "invented")]);
    let own = Identity::api_key(b"invented").to_string();
    let sources = [Source::ApiKey, Source::ip()];
    let policy = || Policy::new("api").identity(sources.to_vec()).quota(Quota::per_minute(5));
    for (builder, identity) in [
        (with_a_key(&sources).unknown_keys(UnknownKeys::Own), own.as_str()),
        (Policies::builder().policy(policy()), &own),
        (Policies::builder().policy(policy()).unknown_keys(UnknownKeys::Ignore), "ip:203.0.113.7"),
    ] {
        let decision = gate(builder).decide_now(&request_with_key(&invented)).unwrap();
        assert_eq!(identity_of(&decision), identity);
    }
}

#[test]
fn a_key_is_known_by_its_digest_and_shown_by_its_name() {
    let identity = Identity::api_key(b"issued");
    let upper = identity.value().to_ascii_uppercase();
    let policies = Policies::builder()
        .plan(Plan::new("pro", [Quota::per_minute(50)]))
        .api_keys([
            ApiKey::from_digest(&upper, "pro").unwrap().name("acme"),
            ApiKey::new("other", "pro"),
        ])
        .policy(Policy::new("api").identity([Source::ApiKey]).plans("pro"))
        .build()
        .unwrap();
    assert_eq!(policies.shown(&identity), "api-key:acme");
    assert_eq!(policies.key_named("acme"), Some(identity));
    assert_eq!(policies.key_named("initech"), None);
    let other = Identity::api_key(b"other");
    assert_eq!(policies.shown(&other), other.as_str());
    let gate = Gate::new(policies, MemoryStore::new());
    let headers = headers(&[("x-api-key", "issued")]);
    let decision = gate.decide_now(&request_with_key(&headers)).unwrap();
    assert_eq!(identity_of(&decision), identity.as_str(), "the account is the digest's");
}

#[test]
fn keys_that_are_wrong_are_errors_without_the_key() {
    for digest in ["", "hunter2", &"g".repeat(32), &"a".repeat(33)] {
        let error = ApiKey::from_digest(digest, "pro").unwrap_err().to_string();
        assert_eq!(error, "expected the digest of an API key, which has 32 hexadecimal digits");
    }
    let digest_like = "0".repeat(32);
    let errors = Policies::builder()
        .plan(Plan::new("pro", [Quota::per_minute(50)]))
        .api_keys([
            ApiKey::new("hunter1", "pro").name("acme"),
            ApiKey::new("hunter2", "pro").name("acme"),
            ApiKey::new("hunter3", "pro").name("two words"),
            ApiKey::new("hunter4", "pro").name(digest_like),
            ApiKey::new("hunter5", "gold"),
            ApiKey::new("hunter1", "pro"),
        ])
        .build()
        .unwrap_err();
    let problems: Vec<&str> = errors.as_slice().iter().map(|error| &*error.problem).collect();
    assert_eq!(problems.len(), 5, "{errors}");
    for (problem, expected) in problems.iter().zip([
        "another API key has this name",
        "\"two words\" is not a name",
        "expected a name that cannot be taken for a digest",
        "there is no such plan; there is pro",
        "this API key already has a plan",
    ]) {
        assert!(problem.starts_with(expected), "{problem}");
    }
    assert!(!errors.to_string().contains("hunter"), "{errors}");
}

#[test]
fn texts_stand_for_quotas_and_methods_and_bad_ones_are_errors_when_built() {
    let good = Policies::builder()
        .plan(Plan::new("free", ["60/min", "10000/day"]))
        .policy(Policy::new("login").method("POST").identity(Source::User).quota("5/min"))
        .build()
        .unwrap();
    let login = good.iter().next().unwrap();
    assert_eq!(login.methods, [Method::POST]);
    assert_eq!(login.quotas(), [Quota::per_minute(5)]);
    assert_eq!(good.plans()[0].quotas.as_slice(), [Quota::per_minute(60), Quota::per_day(10_000)]);

    let bad = Policies::builder()
        .plan(Plan::new("free", ["60 per minute"]))
        .policy(Policy::new("login").method("PO ST").quota("5/fortnight").quota("0/min"));
    let errors = bad.build().unwrap_err().to_string();
    for expected in [
        "plan \"free\": quotas = \"60 per minute\": \"60 per minute\" is not a quota",
        "policy \"login\": method = \"PO ST\": invalid HTTP method",
        "policy \"login\": quotas = \"5/fortnight\": \"fortnight\" is not a window",
        "policy \"login\": quotas = \"0/min\": \"0\" are not units",
    ] {
        assert!(errors.contains(expected), "{expected} in {errors}");
    }
    assert_eq!(errors.lines().count(), 4, "{errors}");
}

#[test]
fn an_identity_that_the_application_names_stands_in_for_a_header() {
    let tenant = HeaderName::from_static("x-tenant");
    let policy = |name: &str, source| Policy::new(name).identity(source).quota("1/min");
    let policies = Policies::builder()
        .policy(policy("key", Source::ApiKey))
        .policy(policy("bearer", Source::Authorization))
        .policy(policy("tenant", Source::Header(tenant.clone())))
        .build()
        .unwrap();
    let named = [
        Identity::api_key(b"k"),
        Identity::authorization(b"Bearer t"),
        Identity::header(&tenant, b"acme"),
    ];
    let facts = Facts::new(&Method::GET, "/").identities(&named);
    let found = |facts: &Facts<'_>| -> Vec<Identity> {
        policies.matching(facts).map(|own| own.identity).collect()
    };
    assert_eq!(found(&facts), named);
    // A request's own key counts before it.
    let mut headers = HeaderMap::new();
    headers.insert("x-api-key", "other".parse().unwrap());
    assert_eq!(found(&facts.headers(&headers))[0], Identity::api_key(b"other"));
}

#[test]
fn an_application_can_count_by_its_own_kinds_beside_the_user() {
    let policies = Policies::builder()
        .policy(Policy::new("tenant").identity(Source::named("tenant")).quota("3/min"))
        .policy(Policy::new("user").identity([Source::User, Source::ip()]).quota("2/min"));
    let gate = Gate::new(policies.build().unwrap(), MemoryStore::new());
    let acme = [Identity::new("device", "7"), Identity::new("tenant", "acme")];
    let facts = |user| Facts::new(&Method::GET, "/").user(user).identities(&acme);
    let allowed = |user| gate.decide_now(&facts(user)).unwrap().is_allowed();
    assert_eq!([allowed("ann"), allowed("ann"), allowed("ann")], [true, true, false]);
    assert_eq!([allowed("bob"), allowed("bob")], [true, false], "the tenant has used its three");
    let denied = gate.decide_now(&facts("bob")).unwrap();
    assert_eq!(denied.tightest().unwrap().0.identity.as_str(), "tenant:acme");
    let nobody = Facts::new(&Method::GET, "/").user("eve");
    let decision = gate.decide_now(&nobody).unwrap();
    assert_eq!(decision.policies()[0].identity.as_str(), "anonymous", "never uncounted");
    // The header of this name is no way to pass for a tenant.
    let mut headers = HeaderMap::new();
    headers.insert("tenant", "acme".parse().unwrap());
    let decision = gate.decide_now(&nobody.headers(&headers).headers_trusted()).unwrap();
    assert_eq!(decision.policies()[0].identity.as_str(), "anonymous");
}

#[test]
fn credentials_in_another_spelling_are_refused_wherever_they_are_read() {
    let stolen = "Basic bWFsbG9yeTpzdG9sZW4=";
    let by_credentials = || {
        Policy::new("api")
            .identity([Source::Authorization, Source::ip()])
            .quota(Quota::per_minute(3))
    };
    let by_address = || Policy::new("api").quota(Quota::per_minute(3));
    let listed = || AccessList::new().authorization(stolen);
    let proxy: HeaderName = "proxy-authorization".parse().unwrap();
    let reading = [
        Policies::builder().policy(by_credentials()),
        Policies::builder().policy(by_address()).blocked(listed()),
        Policies::builder().policy(by_address()).exempt(listed()),
        Policies::builder().policy(by_address().exempt(listed())),
    ];
    let base = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    for policies in reading {
        let gate = gate(policies);
        assert!(gate.check(&base.headers(&headers(&[("authorization", stolen)]))).is_ok());
        for other in [
            "Basic bWFsbG9yeTpz*dG9sZW4=",
            "Basic bWFsbG9yeTpzdG9sZW4",
            "Basic  bWFsbG9yeTpzdG9sZW4=",
            "Bearer t x",
        ] {
            let sent = headers(&[("authorization", other)]);
            let error = gate.check(&base.headers(&sent)).unwrap_err();
            assert!(matches!(error, BadRequest::Credentials { .. }), "{other}");
            assert!(!error.to_string().contains("bWFs"), "no secret shows: {error}");
        }
    }
    // Where nothing reads them, they are the application's.
    let open = gate(Policies::builder().policy(by_address()));
    let odd = headers(&[("authorization", "Bearer t x"), ("proxy-authorization", "Basic x")]);
    assert!(open.check(&base.headers(&odd)).is_ok());
    let by_proxy = gate(Policies::builder().policy(by_address().identity(Source::Header(proxy))));
    assert!(by_proxy.check(&base.headers(&odd)).is_err());
}

#[test]
fn parameters_are_no_identity_and_lists_take_only_credentials() {
    let gate = only(
        Policy::new("api")
            .identity([Source::Authorization, Source::ip()])
            .quota(Quota::per_minute(2)),
    );
    let base = Facts::new(&Method::GET, "/").client(ip(CLIENT));
    for n in 0..3 {
        let digest = headers(&[("authorization", &format!("Digest username=\"a\", nc={n}"))]);
        let facts = base.headers(&digest);
        assert!(gate.check(&facts).is_ok());
        let decision = gate.decide_now(&facts).unwrap();
        assert_eq!(identity_of(&decision), format!("ip:{CLIENT}"));
        assert_eq!(decision.is_allowed(), n < 2);
    }
    for (value, expected) in [
        ("Basic bWFsbG9yeTpzdG9sZW4", "canonical Base64"),
        ("Digest username=\"a\"", "parameters are no identity"),
        ("Bearer a b", "one space and a token"),
    ] {
        let built = Policies::builder().blocked(AccessList::new().authorization(value)).build();
        let said = built.unwrap_err().to_string();
        assert!(
            said.starts_with("blocked: authorizations = \"\"") && said.contains(expected),
            "{said}"
        );
    }
}
