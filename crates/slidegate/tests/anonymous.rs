//! Requests that have none of a policy's identities: they share one account, or are skipped.

use http::{HeaderMap, HeaderValue, Method};
use slidegate::policy::UnknownKeys;
use slidegate::{Block, Facts, Gate, MemoryStore, Policies, Policy, Source, Verdict};

fn by(source: Source) -> Policy {
    Policy::new("api").identity(source).quota("2/min")
}

fn api_keys(values: &[&'static str]) -> HeaderMap {
    values.iter().map(|key| ("x-api-key".parse().unwrap(), HeaderValue::from_static(key))).collect()
}

#[test]
fn anonymous_requests_share_an_account_unless_the_policy_skips_them() {
    let statuses = |policy: Policy| {
        let policies = Policies::builder().policy(policy).build().unwrap();
        let gate = Gate::new(policies, MemoryStore::new());
        let send = |facts: Facts<'_>| gate.decide_now(&facts).unwrap().is_allowed();
        let visitor = Facts::new(&Method::GET, "/").client("203.0.113.7".parse().unwrap());
        [visitor, visitor, visitor, visitor.user("a"), visitor.user("a"), visitor.user("a")]
            .map(send)
    };
    assert_eq!(statuses(by(Source::User)), [true, true, false, true, true, false]);
    assert_eq!(statuses(by(Source::User).skip_anonymous()), [true, true, true, true, true, false]);
}

#[test]
fn a_header_that_is_sent_twice_and_a_key_that_is_refused_are_not_skipped() {
    let policies = |unknown: UnknownKeys| {
        let policy = by(Source::ApiKey).skip_anonymous();
        Policies::builder().policy(policy).unknown_keys(unknown).build().unwrap()
    };
    let counted = |unknown, headers: &HeaderMap| {
        let facts = Facts::new(&Method::GET, "/").headers(headers);
        policies(unknown).matching(&facts).count()
    };
    assert_eq!(counted(UnknownKeys::Own, &api_keys(&["a"])), 1);
    assert_eq!(counted(UnknownKeys::Own, &api_keys(&["a", "a"])), 1);
    assert_eq!(counted(UnknownKeys::Own, &api_keys(&[""])), 0);
    assert_eq!(counted(UnknownKeys::Ignore, &api_keys(&["a"])), 0, "it is no identity");
    let gate = Gate::new(policies(UnknownKeys::Refuse), MemoryStore::new());
    let verdict = |headers: &HeaderMap| {
        gate.decide_now(&Facts::new(&Method::GET, "/").headers(headers)).unwrap().verdict()
    };
    assert_eq!(verdict(&api_keys(&["a"])), Verdict::Block(Block::UnknownKey));
    assert_eq!(verdict(&HeaderMap::new()), Verdict::Allow);
}

#[test]
fn policies_in_which_anonymous_requests_share_an_account_are_listed() {
    let is_sharing = |policy: Policy| {
        let policies = Policies::builder().policy(policy).build().unwrap();
        policies.sharing_anonymous().count() == 1
    };
    for source in [Source::User, Source::ApiKey, Source::Authorization, Source::named("tenant")] {
        assert!(is_sharing(by(source.clone())), "{source}");
        assert!(!is_sharing(by(source.clone()).skip_anonymous()), "{source}");
        assert!(!is_sharing(by(source.clone()).shadow()), "{source}");
        assert!(
            !is_sharing(by(source.clone()).identity([source.clone(), Source::ip()])),
            "{source}"
        );
    }
    assert!(!is_sharing(by(Source::Everyone)));
}
