//! Customers: several keys, keys that end, tables of digests, and what a bearer brings along.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method};
use slidegate::limit::Quotas;
use slidegate::policy::{ApiKey, KeyHash, KeyStatus, TokenStatus, UnknownKeys};
use slidegate::{
    AccessList, Action, Ban, Bearer, Block, Clock, Decision, Facts, Gate, Identity, ManualClock,
    MemoryStore, NamedCharge, Override, Overrides, Plan, Policies, Policy, Quota, Scope, Source,
    Verdict,
};

fn sent(key: &str) -> HeaderMap {
    HeaderMap::from_iter([("x-api-key".parse().unwrap(), HeaderValue::from_str(key).unwrap())])
}

fn get(headers: &HeaderMap) -> Facts<'_> {
    Facts::new(&Method::GET, "/").headers(headers).client("203.0.113.7".parse().unwrap())
}

fn by_key() -> Policy {
    Policy::new("api").identity([Source::ApiKey, Source::ip()]).plans("free")
}

fn plans() -> slidegate::policy::PoliciesBuilder {
    Policies::builder().plan(Plan::new("free", ["1/min"])).plan(Plan::new("pro", ["3/min"]))
}

/// Two keys of one customer, one of them in a table of SHA-256 digests, and a key without a customer.
fn keys() -> [ApiKey; 3] {
    let digest = KeyHash::Sha256.parse(&KeyHash::Sha256.hex(b"k2")).unwrap();
    [
        ApiKey::new("k1", "pro").customer("acme"),
        ApiKey::of_digest(KeyHash::Sha256, digest).plan("pro").customer("acme"),
        ApiKey::new("k3", "pro"),
    ]
}

fn gate_at(policies: Policies) -> (Gate, ManualClock) {
    let clock = ManualClock::default();
    let store = || MemoryStore::builder().clock(clock.clone()).build();
    (Gate::with_local(policies, store(), store()), clock)
}

fn gate() -> Gate {
    gate_at(plans().api_keys(keys()).policy(by_key()).build().unwrap()).0
}

fn decide(gate: &Gate, facts: &Facts<'_>) -> Decision {
    gate.decide_now(facts).unwrap()
}

fn allowed(gate: &Gate, key: &str) -> bool {
    decide(gate, &get(&sent(key))).is_allowed()
}

fn identity(gate: &Gate, key: &str) -> String {
    decide(gate, &get(&sent(key))).policies()[0].identity.to_string()
}

#[test]
fn the_keys_of_a_customer_spend_from_one_account() {
    let gate = gate();
    assert_eq!(
        ["k1", "k2", "k1", "k2", "k3"].map(|key| allowed(&gate, key)),
        [true, true, true, false, true]
    );
    assert_eq!(identity(&gate, "k1"), "customer:acme");
    assert_eq!(identity(&gate, "k2"), "customer:acme");
    assert_eq!(identity(&gate, "k3"), Identity::api_key(b"k3").to_string());
}

#[test]
fn a_rotated_key_changes_nothing_but_the_key() {
    let gate = gate();
    assert!(allowed(&gate, "k1") && allowed(&gate, "k1"));
    let rotated = ApiKey::new("k4", "pro").customer("acme");
    gate.replace_policies(plans().api_keys([rotated]).policy(by_key()).build().unwrap());
    assert_eq!(["k4", "k4", "k1"].map(|key| allowed(&gate, key)), [true, false, true]);
    assert_eq!(identity(&gate, "k1"), "ip:203.0.113.7", "the old key is unknown now");
}

#[test]
fn a_key_ends_when_it_expires() {
    let ends = ManualClock::default().now() + Duration::from_secs(60);
    let key = ApiKey::new("k", "pro").customer("acme").expires(ends);
    for (unknown, verdict) in [
        (UnknownKeys::Refuse, Verdict::Block(Block::UnknownKey)),
        (UnknownKeys::Ignore, Verdict::Allow),
    ] {
        let policies = plans().api_keys([key.clone()]).policy(by_key()).unknown_keys(unknown);
        let (gate, clock) = gate_at(policies.build().unwrap());
        clock.advance(Duration::from_nanos(ends.as_nanos() - gate.now().as_nanos() - 1));
        assert_eq!(identity(&gate, "k"), "customer:acme");
        clock.advance(Duration::from_nanos(1));
        let headers = sent("k");
        assert_eq!(decide(&gate, &get(&headers)).verdict(), verdict);
        assert!(gate.explain(&get(&headers)).to_string().contains("the API key is unknown"));
    }
}

#[test]
fn an_exemption_ends_with_its_key() {
    let ends = ManualClock::default().now() + Duration::from_secs(60);
    let key = ApiKey::new("k", "pro").expires(ends);
    let policies = plans().api_keys([key]).policy(by_key()).exempt(AccessList::new().api_key("k"));
    let policies = policies.unknown_keys(UnknownKeys::Refuse).build().unwrap();
    let (gate, clock) = gate_at(policies);
    assert!((0..9).all(|_| allowed(&gate, "k")));
    clock.advance(Duration::from_secs(60));
    assert_eq!(decide(&gate, &get(&sent("k"))).verdict(), Verdict::Block(Block::UnknownKey));
}

#[test]
fn a_table_of_sha256_digests_can_be_used_everywhere() {
    // As `sha256sum` has it.
    assert_eq!(KeyHash::Sha256.hex(b"hello").get(..16), Some("2cf24dba5fb0a30e"));
    let digest = KeyHash::Sha256.hex(b"k3");
    assert_eq!(digest.len(), 64);
    let listed = |list: AccessList| plans().api_keys(keys()).policy(by_key()).blocked(list);
    let (gate, _) = gate_at(listed(AccessList::new().api_key_digest(&digest)).build().unwrap());
    let verdict = |key| decide(&gate, &get(&sent(key))).verdict();
    assert_eq!(verdict("k3"), Verdict::Block(Block::Listed));
    assert_eq!(verdict("k1"), Verdict::Allow);
    assert!(listed(AccessList::new().api_key_digest(&digest[1..])).build().is_err());
    // Of a key without a customer, the digest of the table is the identity.
    let parsed = KeyHash::Sha256.parse(&digest.to_uppercase()).unwrap();
    let key = ApiKey::of_digest(KeyHash::Sha256, parsed).plan("pro").name("initech");
    let (gate, _) = gate_at(plans().api_keys([key]).policy(by_key()).build().unwrap());
    let own = identity(&gate, "k3");
    assert_eq!(own, format!("api-key:{}", &digest[..32]));
    assert_eq!(gate.policies().shown(&own.parse().unwrap()), "api-key:initech");
    for text in ["", "zz", &digest[..63], &digest[..32]] {
        assert!(KeyHash::Sha256.parse(text).is_err(), "{text}");
    }
}

#[test]
fn lists_and_overrides_go_by_customer() {
    let exempt =
        plans().api_keys(keys()).policy(by_key()).exempt(AccessList::new().customer("acme"));
    let (gate, _) = gate_at(exempt.build().unwrap());
    assert!((0..9).all(|_| allowed(&gate, "k2")));
    let gate = self::gate();
    let ban = Override {
        identity: Identity::customer("acme"),
        policy: None,
        action: Action::Ban,
        until: gate.now() + Duration::from_secs(60),
    };
    gate.admin().replace_overrides(Overrides::new([ban.clone()]).unwrap());
    assert_eq!(["k1", "k2", "k3"].map(|key| allowed(&gate, key)), [false, false, true]);
    // One key of the customer alone can be banned as well.
    let one = Override { identity: Identity::api_key(b"k1"), ..ban };
    gate.admin().replace_overrides(Overrides::new([one]).unwrap());
    assert_eq!(["k1", "k2"].map(|key| allowed(&gate, key)), [false, true]);
}

#[test]
fn a_customer_cannot_shed_a_ban_with_another_key() {
    let banning = by_key().ban(Ban::after(Quota::per_minute(1)).lasting(Duration::from_secs(600)));
    let (gate, _) = gate_at(plans().api_keys(keys()).policy(banning).build().unwrap());
    assert_eq!(["k1", "k1", "k1", "k1"].map(|key| allowed(&gate, key)), [true, true, true, false]);
    let verdict = decide(&gate, &get(&sent("k2"))).verdict();
    assert!(matches!(verdict, Verdict::Block(Block::Banned { .. })), "{verdict:?}");
}

#[test]
fn named_charges_and_descriptors_mean_the_customer_too() {
    let policies = plans()
        .api_keys(keys())
        .policy(by_key())
        .policy(Policy::new("edge").descriptors("edge", [("api_key", "*")]).plans("free"))
        .policy(Policy::new("sold").descriptors("edge", [("customer", "*")]).plans("free"));
    let (gate, _) = gate_at(policies.build().unwrap());
    let policies = gate.policies();
    for key in ["k1", "k2"] {
        let charge = NamedCharge {
            policy: "api",
            identity: policies.identity_of_key(key.as_bytes()),
            plan: None,
            cost: None,
            quotas: None,
        };
        let named = futures_ready(gate.peek_named(&[charge])).unwrap();
        assert_eq!(account_and_plan(&named), ("customer:acme", "pro"), "{key}");
        for entry in ["api_key", "api-key"] {
            let policies = plans()
                .api_keys(keys())
                .policy(Policy::new("edge").descriptors("edge", [(entry, "*")]).plans("free"));
            let (gate, _) = gate_at(policies.build().unwrap());
            let policies = gate.policies();
            let edge = policies.descriptor_charges("edge", &[(entry, key)]).next().unwrap();
            let edge = futures_ready(gate.decide_named(&[edge])).unwrap();
            assert_eq!(account_and_plan(&edge), ("customer:acme", "pro"), "{entry} {key}");
        }
    }
    let sold = policies.descriptor_charges("edge", &[("customer", "acme")]).next().unwrap();
    let sold = futures_ready(gate.decide_named(&[sold])).unwrap();
    assert_eq!(account_and_plan(&sold), ("customer:acme", "pro"));
}

#[test]
fn a_key_that_has_ended_is_charged_by_name_without_its_customer() {
    let end = ManualClock::default().now() + Duration::from_secs(60);
    let key = ApiKey::new("k1", "pro").customer("acme").expires(end);
    let edge = Policy::new("edge").descriptors("edge", [("api_key", "*")]).plans("free");
    let (gate, clock) = gate_at(plans().api_keys([key]).policy(edge).build().unwrap());
    let charged = || {
        let policies = gate.policies();
        let charge = policies.descriptor_charges("edge", &[("api_key", "k1")]).next().unwrap();
        let customer = NamedCharge { identity: Identity::customer("acme"), ..charge };
        let of_customer = futures_ready(gate.peek_named(&[customer])).unwrap();
        let charged = futures_ready(gate.peek_named(&[charge])).unwrap();
        assert_eq!(account_and_plan(&of_customer).1, account_and_plan(&charged).1);
        charged
    };
    clock.advance(Duration::from_millis(59_999));
    assert_eq!(account_and_plan(&charged()), ("customer:acme", "pro"));
    clock.advance(Duration::from_millis(1));
    let own = Identity::api_key(b"k1");
    assert_eq!(account_and_plan(&charged()), (own.as_str(), "free"));
}

#[test]
fn too_many_credentials_are_no_way_around_lists_and_bans() {
    let wait = Duration::from_millis(300);
    let key = Bearer::new().key(KeyStatus::Unchecked { retry_after: wait });
    let token = Bearer::new().token(TokenStatus::Unchecked { retry_after: wait });
    let by_address = || Policies::builder().policy(Policy::new("api").quota("9/min"));
    let list = |list: AccessList| gate_at(by_address().blocked(list).build().unwrap()).0;
    let banned = list(AccessList::new());
    let ban = Override {
        identity: Identity::customer("mallory"),
        policy: None,
        action: Action::Ban,
        until: banned.now() + Duration::from_secs(60),
    };
    banned.admin().replace_overrides(Overrides::new([ban]).unwrap());
    let headers = sent("k");
    for (gate, unknown_key, unknown_token) in [
        (list(AccessList::new()), false, false),
        (list(AccessList::new().path("/admin")), false, false),
        (list(AccessList::new().user("mallory")), false, true),
        (list(AccessList::new().customer("mallory")), true, true),
        (banned, true, true),
    ] {
        for (bearer, is_refused) in [(&key, unknown_key), (&token, unknown_token)] {
            let verdict = decide(&gate, &get(&headers).bearer(bearer)).verdict();
            let refused = Verdict::Block(Block::UncheckedCredentials { retry_after: wait });
            assert_eq!(verdict == refused, is_refused, "{verdict:?} for {bearer:?}");
        }
    }
}

#[test]
fn credentials_that_were_not_checked_matter_only_where_they_are_asked_for() {
    let by_user = Policy::new("api").identity([Source::User, Source::ApiKey]).quota("9/min");
    let (gate, _) = gate_at(Policies::builder().policy(by_user).build().unwrap());
    let bearer = Bearer::new().key(KeyStatus::Unchecked { retry_after: Duration::from_secs(1) });
    let headers = sent("k");
    let facts = get(&headers).bearer(&bearer);
    assert!(!decide(&gate, &facts).is_allowed());
    assert!(decide(&gate, &facts.user("ann")).is_allowed(), "the application names the user");
}

fn account_and_plan(decision: &Decision) -> (&str, &str) {
    let standing = &decision.policies()[0];
    (standing.identity.as_str(), &standing.plan.as_ref().unwrap().name)
}

fn futures_ready<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(output) => output,
        std::task::Poll::Pending => panic!("a memory store never waits"),
    }
}

#[test]
fn a_bearer_says_who_pays_and_by_which_terms() {
    let by_customer = Policy::new("api").identity([Source::Customer, Source::ip()]).plans("free");
    let by_user = Policy::new("user").identity([Source::User, Source::ip()]).quota("9/min");
    let (gate, _) = gate_at(plans().policy(by_customer).policy(by_user).build().unwrap());
    let headers = HeaderMap::new();
    let bearer = Bearer::new().customer("acme").user("42").plan("pro").token(TokenStatus::Valid);
    let decision = decide(&gate, &get(&headers).bearer(&bearer));
    let [api, user] = decision.policies() else { panic!("{decision:?}") };
    assert_eq!((api.identity.as_str(), user.identity.as_str()), ("customer:acme", "user:42"));
    assert_eq!(&*api.plan.as_ref().unwrap().name, "pro");
    // What the application says goes before what credentials say.
    let decision = decide(&gate, &get(&headers).bearer(&bearer).user("7").plan("free"));
    assert_eq!(decision.policies()[1].identity.as_str(), "user:7");
    assert_eq!(&*decision.policies()[0].plan.as_ref().unwrap().name, "free");
    // Quotas of its own are in place of a plan's.
    let quotas = Quotas::new(["2/min".parse().unwrap(), "5/h".parse().unwrap()]).unwrap();
    let special = Bearer::new().customer("initech").quotas(quotas);
    let special = get(&headers).bearer(&special);
    let units: Vec<_> = [0; 3].map(|_| decide(&gate, &special).is_allowed()).into();
    assert_eq!(units, [true, true, false]);
    let standings = decide(&gate, &special).policies()[0].standings.clone();
    assert_eq!(
        standings.iter().map(|own| own.quota().to_string()).collect::<Vec<_>>(),
        ["2/min", "5/h"]
    );
    assert_eq!(gate.policies().matching(&special).count(), 2, "with quotas that it has alone");
}

#[test]
fn what_becomes_of_a_key_is_said_by_its_status() {
    let verdict = |unknown: UnknownKeys, status: KeyStatus| {
        let policies = plans().policy(by_key()).unknown_keys(unknown).build().unwrap();
        let (gate, _) = gate_at(policies);
        let (headers, bearer) = (sent("k"), Bearer::new().key(status));
        let decision = decide(&gate, &get(&headers).bearer(&bearer));
        let identity = decision.policies().first().map(|own| own.identity.kind().to_owned());
        (decision.verdict(), identity.unwrap_or_default())
    };
    let issued = KeyStatus::Issued(Identity::customer("acme"));
    let (ip, none) = ("ip".to_owned(), String::new());
    let retry_after = Duration::from_millis(300);
    let unchecked = KeyStatus::Unchecked { retry_after };
    let late = Verdict::Block(Block::UncheckedCredentials { retry_after });
    use UnknownKeys::{Ignore, Refuse};
    for (unknown, status, expected) in [
        (Refuse, issued, (Verdict::Allow, "customer".to_owned())),
        (Refuse, KeyStatus::Unknown, (Verdict::Block(Block::UnknownKey), none.clone())),
        (Ignore, KeyStatus::Unknown, (Verdict::Allow, ip.clone())),
        // An error is never an unknown key.
        (Refuse, KeyStatus::Unavailable, (Verdict::Block(Block::KeysUnavailable), none.clone())),
        (Ignore, KeyStatus::Unavailable, (Verdict::Block(Block::KeysUnavailable), none)),
        (Refuse, KeyStatus::Passed, (Verdict::Allow, ip)),
        (Refuse, unchecked, (late, String::new())),
        (Ignore, unchecked, (late, String::new())),
    ] {
        assert_eq!(verdict(unknown, status), expected, "{unknown:?} {status:?}");
    }
}

#[test]
fn what_becomes_of_a_token_is_said_by_its_status() {
    let wait = Duration::from_millis(300);
    let verdict = |source: Source, token: TokenStatus| {
        let policy = Policy::new("api").identity([source, Source::ip()]).quota("9/min");
        let (gate, _) = gate_at(Policies::builder().policy(policy).build().unwrap());
        let (headers, bearer) = (HeaderMap::new(), Bearer::new().token(token));
        decide(&gate, &get(&headers).bearer(&bearer)).verdict()
    };
    let unchecked = TokenStatus::Unchecked { retry_after: wait };
    for source in [Source::User, Source::Customer] {
        assert_eq!(
            verdict(source.clone(), TokenStatus::Invalid),
            Verdict::Block(Block::InvalidToken)
        );
        assert_eq!(
            verdict(source.clone(), TokenStatus::Unavailable),
            Verdict::Block(Block::KeysUnavailable)
        );
        let late = Verdict::Block(Block::UncheckedCredentials { retry_after: wait });
        assert_eq!(verdict(source.clone(), unchecked), late);
        assert_eq!(verdict(source, TokenStatus::None), Verdict::Allow);
    }
    assert_eq!(verdict(Source::ApiKey, TokenStatus::Invalid), Verdict::Allow);
    assert_eq!(verdict(Source::ApiKey, unchecked), Verdict::Allow);
}

#[test]
fn a_token_that_would_give_the_plan_is_refused_wherever_plans_count() {
    let wait = Duration::from_millis(300);
    let verdict = |key: KeyStatus, token: TokenStatus, plan: &str| {
        let (gate, _) = gate_at(plans().tokens_have_plans().policy(by_key()).build().unwrap());
        let (headers, bearer) = (sent("k"), Bearer::new().key(key).token(token));
        let facts = get(&headers).bearer(&bearer);
        let facts = if plan.is_empty() { facts } else { facts.plan(plan) };
        decide(&gate, &facts).verdict()
    };
    let unknown = KeyStatus::Unknown;
    let invalid = Verdict::Block(Block::InvalidToken);
    assert_eq!(verdict(unknown, TokenStatus::Invalid, ""), invalid);
    let late = Verdict::Block(Block::UncheckedCredentials { retry_after: wait });
    assert_eq!(verdict(unknown, TokenStatus::Unchecked { retry_after: wait }, ""), late);
    // Where the plan is not the token's, the token does not matter.
    assert_eq!(verdict(unknown, TokenStatus::None, ""), Verdict::Allow);
    assert_eq!(verdict(unknown, TokenStatus::Invalid, "pro"), Verdict::Allow);
    let issued = KeyStatus::Issued(Identity::customer("acme"));
    assert_eq!(verdict(issued, TokenStatus::Invalid, ""), Verdict::Allow);
    let (gate, _) = gate_at(plans().policy(by_key()).build().unwrap());
    let (headers, bearer) = (sent("k"), Bearer::new().token(TokenStatus::Invalid));
    let decision = decide(&gate, &get(&headers).bearer(&bearer));
    assert!(decision.is_allowed(), "tokens have no plans here");
}

#[test]
fn no_header_passes_for_a_customer() {
    let name = "customer".parse().unwrap();
    assert_ne!(Identity::header(&name, b"acme").as_str(), "customer:acme");
    let policy = Policy::new("api").identity([Source::Customer, Source::ip()]).quota("9/min");
    let (gate, _) = gate_at(Policies::builder().policy(policy).build().unwrap());
    let headers = HeaderMap::from_iter([(name, HeaderValue::from_static("acme"))]);
    let decision = decide(&gate, &get(&headers).headers_trusted());
    assert_eq!(decision.policies()[0].identity.kind(), "ip");
}

#[test]
fn an_address_is_refused_before_anything_costly_and_spends_once() {
    let flood =
        Policy::new("flood").scope(Scope::Local).identity(Source::ip()).quota("2/s").count_denied();
    let policies =
        Policies::builder().policy(flood).policy(by_key()).plan(Plan::new("free", ["9/min"]));
    let (gate, clock) = gate_at(policies.build().unwrap());
    let headers = sent("k");
    for _ in 0..2 {
        assert!(gate.refuse_by_address(&get(&headers)).is_none());
        assert!(decide(&gate, &get(&headers)).is_allowed());
    }
    let refused = gate.refuse_by_address(&get(&headers)).expect("no room");
    assert_eq!(&*refused.policies()[0].policy, "flood");
    assert_eq!(refused.policies().len(), 1, "nothing else was looked at");
    // It was counted, as the policy says, so half a second later there is still no room.
    clock.advance(Duration::from_millis(999));
    assert!(gate.refuse_by_address(&get(&headers)).is_some());
    clock.advance(Duration::from_secs(2));
    assert!(gate.refuse_by_address(&get(&headers)).is_none());
    let other = Facts::new(&Method::GET, "/");
    assert!(gate.refuse_by_address(&other).is_none(), "no address, nothing to refuse it by");
}

#[test]
fn one_credential_lends_no_plan_to_another() {
    let by_customer = Policy::new("api").identity([Source::Customer, Source::ip()]).plans("free");
    let policies = plans().api_keys([ApiKey::new("k", "pro")]).policy(by_customer).build().unwrap();
    let (gate, _) = gate_at(policies);
    let headers = sent("k");
    // The key has a plan and no customer, the token a customer and no plan.
    let bearer = Bearer::new().customer("beta").token(TokenStatus::Valid);
    let decision = decide(&gate, &get(&headers).bearer(&bearer));
    let own = &decision.policies()[0];
    assert_eq!((own.identity.kind(), &*own.plan.as_ref().unwrap().name), ("ip", "pro"));
    // The same for a key that was looked up.
    let own_account = KeyStatus::Issued(Identity::api_key(b"k2"));
    let bearer = bearer.key(own_account).plan("pro");
    let headers = sent("k2");
    let decision = decide(&gate, &get(&headers).bearer(&bearer));
    let own = &decision.policies()[0];
    assert_eq!((own.identity.kind(), &*own.plan.as_ref().unwrap().name), ("ip", "pro"));
}

#[test]
fn a_listed_key_does_not_stand_in_for_a_token_of_another_customer() {
    let by_customer = Policy::new("api").identity([Source::Customer, Source::ip()]).quota("9/min");
    let blocked = AccessList::new().customer("evil");
    let policies = Policies::builder().plan(Plan::new("pro", ["9/min"])).api_keys(keys());
    let (gate, _) = gate_at(policies.policy(by_customer).blocked(blocked).build().unwrap());
    let verdict = |key: &str, customer: &str| {
        let bearer = Bearer::new().customer(customer).token(TokenStatus::Valid);
        decide(&gate, &get(&sent(key)).bearer(&bearer)).verdict()
    };
    assert_eq!(verdict("k1", "acme"), Verdict::Allow);
    assert_eq!(verdict("k1", "beta"), Verdict::Block(Block::InvalidToken));
    assert_eq!(verdict("k3", "beta"), Verdict::Allow, "the key has no customer");
    assert_eq!(verdict("unknown", "beta"), Verdict::Allow, "it counts for nothing");
    for key in ["k1", "k3", "unknown"] {
        assert_eq!(verdict(key, "evil"), Verdict::Block(Block::Listed), "{key}");
    }
}

#[test]
fn what_cannot_be_looked_up_may_have_another_plan() {
    let verdict = |policies: slidegate::policy::PoliciesBuilder, bearer: Bearer, plan: &str| {
        let policy = Policy::new("api").identity([Source::User, Source::ip()]).plans("free");
        let (gate, _) = gate_at(policies.policy(policy).build().unwrap());
        let headers = sent("k");
        let facts = get(&headers).bearer(&bearer);
        let facts = if plan.is_empty() { facts } else { facts.plan(plan) };
        decide(&gate, &facts).verdict()
    };
    let unavailable = Verdict::Block(Block::KeysUnavailable);
    let key = || Bearer::new().key(KeyStatus::Unavailable);
    assert_eq!(verdict(plans(), key(), ""), unavailable);
    assert_eq!(verdict(plans(), key(), "pro"), Verdict::Allow, "the application knows it");
    assert_eq!(verdict(plans(), Bearer::new().key(KeyStatus::Passed), ""), Verdict::Allow);
    let retry_after = Duration::from_millis(300);
    let unchecked = Bearer::new().key(KeyStatus::Unchecked { retry_after });
    let late = Verdict::Block(Block::UncheckedCredentials { retry_after });
    assert_eq!(verdict(plans(), unchecked.clone(), ""), late);
    assert_eq!(verdict(plans(), unchecked, "pro"), Verdict::Allow);
    // Tokens name plans only where the configuration says so. The user would come from it too.
    let by_ip = |policies: slidegate::policy::PoliciesBuilder| {
        let policy = Policy::new("api").identity(Source::ip()).plans("free");
        let (gate, _) = gate_at(policies.policy(policy).build().unwrap());
        let (headers, bearer) = (HeaderMap::new(), Bearer::new().token(TokenStatus::Unavailable));
        decide(&gate, &get(&headers).bearer(&bearer)).verdict()
    };
    assert_eq!(by_ip(plans()), Verdict::Allow);
    assert_eq!(by_ip(plans().tokens_have_plans()), unavailable);
}

#[test]
fn inventing_credentials_is_not_free() {
    let flood = Policy::new("flood").scope(Scope::Local).identity(Source::ip()).quota("3/min");
    let policies = plans().policy(flood).policy(by_key()).unknown_keys(UnknownKeys::Refuse);
    let (gate, _) = gate_at(policies.build().unwrap());
    let verdicts = ["a", "b", "c", "d", "e"].map(|key| decide(&gate, &get(&sent(key))).verdict());
    let unknown = Verdict::Block(Block::UnknownKey);
    assert_eq!(verdicts[..3], [unknown; 3]);
    assert!(verdicts[3..].iter().all(|one| matches!(one, Verdict::Deny { .. })), "{verdicts:?}");
    // Peeking counts nothing.
    let (gate, _) =
        gate_at(plans().policy(by_key()).unknown_keys(UnknownKeys::Refuse).build().unwrap());
    assert_eq!(gate.peek_now(&get(&sent("a"))).unwrap().verdict(), unknown);
}

#[test]
fn an_address_alone_refuses_nothing_that_credentials_may_allow() {
    let flood = || Policy::new("flood").scope(Scope::Local).identity(Source::ip());
    let gate_with =
        |policies: slidegate::policy::PoliciesBuilder| gate_at(policies.build().unwrap()).0;
    let headers = sent("k");
    let full = |gate: &Gate| {
        let visitor = Facts::new(&Method::GET, "/").client("203.0.113.7".parse().unwrap());
        for _ in 0..9 {
            drop(decide(gate, &visitor));
        }
        gate.refuse_by_address(&get(&headers)).is_some()
    };
    let by_quota = || flood().quota("2/s");
    assert!(full(&gate_with(Policies::builder().policy(by_quota()))));
    let listed = AccessList::new().api_key("k");
    let exempt = Policies::builder().policy(by_quota()).exempt(listed.clone());
    assert!(!full(&gate_with(exempt)), "exempt by its key");
    assert!(!full(&gate_with(Policies::builder().policy(by_quota().exempt(listed)))));
    let by_plan = plans().policy(flood().plans("free"));
    assert!(!full(&gate_with(by_plan)), "the key may have another plan");
    // A ban under a policy that counts by key first says nothing of the address.
    let gate = gate_with(plans().policy(by_key()));
    let ban = Override {
        identity: "ip:203.0.113.7".parse().unwrap(),
        policy: Some("api".parse().unwrap()),
        action: Action::Ban,
        until: gate.now() + Duration::from_secs(60),
    };
    gate.admin().replace_overrides(Overrides::new([ban]).unwrap());
    assert!(gate.refuse_by_address(&get(&headers)).is_none());
}

#[test]
fn a_source_that_is_away_matters_only_where_it_is_asked() {
    let policy = Policy::new("api").identity([Source::User, Source::ApiKey]).quota("9/min");
    let (gate, _) = gate_at(Policies::builder().policy(policy).build().unwrap());
    let (headers, bearer) = (sent("k"), Bearer::new().key(KeyStatus::Unavailable));
    let facts = get(&headers).bearer(&bearer);
    assert_eq!(decide(&gate, &facts).verdict(), Verdict::Block(Block::KeysUnavailable));
    assert_eq!(decide(&gate, &facts.user("ann")).verdict(), Verdict::Allow);
}
