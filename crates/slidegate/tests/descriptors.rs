//! Policies for descriptors.

use http::Method;
use slidegate::{AccessList, Facts, Identity, Policies, Policy, Source};

/// The charges for a descriptor, as `policy identity`.
fn charges(policies: &Policies, domain: &str, descriptor: &[(&str, &str)]) -> Vec<String> {
    let charges = policies.descriptor_charges(domain, descriptor);
    charges.map(|charge| format!("{} {}", charge.policy, charge.identity)).collect()
}

fn build(list: impl IntoIterator<Item = Policy>) -> Result<Policies, slidegate::PolicyErrors> {
    let builder = list
        .into_iter()
        .fold(Policies::builder(), |builder, policy| builder.policy(policy.quota("5/min")));
    builder.build()
}

#[test]
fn a_policy_is_for_exactly_its_keys_and_values() {
    let login = [("remote_address", "*"), ("path", "/login")];
    let policies = build([
        Policy::new("login").descriptors("edge", login),
        Policy::new("all").descriptors("edge", login).identity(Source::Everyone),
        Policy::new("twice").descriptors("edge", [("key", "a"), ("key", "b*")]),
        Policy::new("requests"),
    ])
    .unwrap();
    let (address, path) = (("remote_address", "203.0.113.7"), ("path", "/login"));
    let both = ["login ip:203.0.113.7", "all everyone"];
    assert_eq!(charges(&policies, "edge", &[address, path]), both);
    assert_eq!(charges(&policies, "edge", &[path, address]), both, "in any order");
    for (domain, descriptor) in [
        ("other", &[address, path][..]),
        ("edge", &[address]),
        ("edge", &[address, ("path", "/logout")]),
        ("edge", &[address, path, ("method", "POST")]),
        ("edge", &[address, address]),
        ("edge", &[]),
    ] {
        assert_eq!(charges(&policies, domain, descriptor), [""; 0], "{descriptor:?}");
    }
    for (second, expected) in [("bc", "twice key+key:a,bc"), ("bd", "twice key+key:a,bd")] {
        let found = charges(&policies, "edge", &[("key", "a"), ("key", second)]);
        assert_eq!(found, [expected], "an account for each pair of values");
    }
    assert_eq!(charges(&policies, "edge", &[("key", "bc"), ("key", "a")]), [""; 0]);
    assert!(policies.has_domain("edge") && !policies.has_domain("other"));

    let method = Method::POST;
    let facts = Facts::new(&method, "/login").client("203.0.113.7".parse().unwrap());
    let explained = policies.explain(&facts).to_string();
    let text = "login: not for requests, only for remote_address=* path=/login of domain edge\n";
    assert!(explained.starts_with(text), "{explained}");
    assert!(explained.contains("requests: takes 1 unit of 5/min from ip:203.0.113.7"));
}

#[test]
fn values_can_be_left_to_other_policies() {
    let any = [("remote_address", "*"), ("path", "*")];
    let policies = build([
        Policy::new("any")
            .descriptors("edge", any)
            .except("path", "/login")
            .except("path", "/api/*"),
        Policy::new("login").descriptors("edge", [("remote_address", "*"), ("path", "/login")]),
    ])
    .unwrap();
    let of =
        |path| charges(&policies, "edge", &[("remote_address", "203.0.113.7"), ("path", path)]);
    assert_eq!(of("/"), ["any remote_address+path:203.0.113.7,/"]);
    assert_eq!(of("/login"), ["login ip:203.0.113.7"]);
    assert_eq!(of("/api/v1"), [""; 0]);
    let facts = Facts::new(&Method::GET, "/");
    let text = "remote_address=* path=* of domain edge, except path=/login path=/api/*\n";
    let explained = policies.explain(&facts).to_string();
    assert!(explained.contains(text), "{explained}");
}

#[test]
fn several_values_are_one_identity_and_no_two_lists_are_the_same() {
    let entries = [("remote_address", "*"), ("path", "*"), ("method", "GET")];
    let policies = build([
        Policy::new("open").descriptors("edge", entries),
        Policy::new("named")
            .descriptors("edge", entries)
            .identity(["descriptor:path+method".parse::<Source>().unwrap()]),
    ])
    .unwrap();
    let descriptor = [("remote_address", "2001:db8::1"), ("path", "/a"), ("method", "GET")];
    let expected = ["open remote_address+path:2001:db8::/64,/a", "named path+method:/a,GET"]
        .map(str::to_owned);
    assert_eq!(charges(&policies, "edge", &descriptor), expected);

    let of = |values: [&str; 2]| Identity::descriptor(["a", "b"].into_iter().zip(values));
    let lists = [["x,y", "z"], ["x", "y,z"], ["x", ""], ["", "x"], ["x y", "z"], ["x", "y z"]];
    for (i, values) in lists.iter().enumerate() {
        assert!(!lists[..i].iter().any(|other| of(*other) == of(*values)), "{values:?}");
        assert_eq!(of(*values).kind(), "a+b");
    }
}

#[test]
fn values_are_what_they_are_of_a_request_and_secrets_do_not_show() {
    for (key, value, identity) in [
        ("remote_address", "::ffff:203.0.113.7", "ip:203.0.113.7".parse().unwrap()),
        ("remote_address", "nobody", "remote_address:nobody".parse().unwrap()),
        ("user", "42", Identity::user("42")),
        ("api_key", "s3cret", Identity::api_key(b"s3cret")),
        ("x-api-key", "s3cret", Identity::api_key(b"s3cret")),
        ("authorization", "Bearer s3cret", Identity::authorization(b"Bearer s3cret")),
        ("generic_key", "slow", "generic_key:slow".parse().unwrap()),
    ] {
        assert_eq!(Identity::descriptor([(key, value)]), identity, "{key}");
    }
    for key in ["api_key", "x_api_key", "cookie", "proxy-authorization"] {
        let both = Identity::descriptor([(key, "s3cret"), ("path", "/")]);
        assert!(!both.as_str().contains("s3cret"), "{both}");
    }
    assert_eq!(Identity::descriptor([("no header", "x")]).kind(), "other");
    assert!(Identity::descriptor([("k", "two words")]).value().starts_with('~'));
}

#[test]
fn what_cannot_be_meant_is_an_error() {
    let any = [("a", "*")];
    for (policy, problem) in [
        (Policy::new("p").descriptors("", any), "domain = \"\": expected the name"),
        (Policy::new("p").descriptors("d", [("", "*")]), "expected keys with values"),
        (Policy::new("p").descriptors("d", [("a", "*"); 0]), "expected keys with values"),
        (
            Policy::new("p").descriptors("d", any).except("b", "x"),
            "except = \"b\": descriptors have only a",
        ),
        (Policy::new("p").except("a", "x"), "except = \"a\": requests have no descriptors"),
        (Policy::new("p").descriptors("d", any).method("GET"), "descriptors have no method"),
        (Policy::new("p").descriptors("d", any).path("/"), "descriptors have no method"),
        (
            Policy::new("p").descriptors("d", any).exempt(AccessList::new().user("42")),
            "policy without method, path and exempt",
        ),
        (Policy::new("p").descriptors("d", any).identity(Source::ip()), "have only a"),
        (
            Policy::new("p").descriptors("d", any).identity(Source::Descriptor(vec!["b".into()])),
            "identity = \"descriptor:b\": descriptors have only a",
        ),
        (
            Policy::new("p").descriptors("d", any).identity([Source::Everyone, Source::Everyone]),
            "expected one source",
        ),
        (
            Policy::new("p").identity(Source::Descriptor(vec!["a".into()])),
            "requests have no descriptors",
        ),
    ] {
        let errors = build([policy]).unwrap_err().to_string();
        assert!(errors.contains(problem), "{problem}: {errors}");
    }
}
