//! Paths in every spelling: no policy is evaded, and no exemption is reached by a detour.

pub(crate) mod properties;

use std::borrow::Cow;

use http::Method;
use slidegate::policy::{BadRequest, PathReading};
use slidegate::{AccessList, Facts, Gate, MemoryStore, Policies, Policy};

/// Each is `/api/login` to some server, or to two of them behind one another.
const SPELLINGS: [&str; 76] = [
    "/api/login",
    "/api/login/",
    "/api/login//",
    "//api/login",
    "/api//login",
    "///api///login///",
    "/./api/login",
    "/api/./login/.",
    "/../api/login",
    "/x/../api/login",
    "/x/y/../../api/login",
    "/x//../../api/login",
    "/x/..//api/login",
    "/api/login/x/..",
    // As RFC 3986 resolves it: the empty segment is what is left.
    "/api//../login",
    "/api/x//../../login",
    "/%61pi/login",
    "/api/%6Cogin",
    "/%61%70%69/%6c%6f%67%69%6e",
    "/%2e/api/login",
    "/x/%2E%2e/api/login",
    "/x/.%2e/api/login",
    // Dots that are resolved before the others are decoded.
    "/api/%2e%2e/../login",
    "/api/login?next=/",
    "/%61pi/login/?",
    "/api/login#x",
    "/api/login/#/../x",
    "/api/login#x?y",
    "/api/login%23x",
    "/api/login%3Fx",
    "/x#/../api/login",
    "/api/login;x=1",
    "/api/login;",
    "/api;a=b;c/login",
    "/;x=1/api/login",
    "/x/..;/api/login",
    "/x/..;a=b/api/login",
    "/x/%2e%2e;/api/login",
    "/api/login%3bx=1",
    "/x/..%3b/api/login",
    "/api/login%20",
    "/api/login%20%20/",
    "/api/login%20;x=1",
    "/x/..%20/api/login",
    "/x/..%20;y/api/login",
    "/api/..;x/../login;y",
    "/api/x/..;/../..%20/api/login;",
    "/API/login",
    "/Api/LogIn",
    "/%41pi/%4cogin",
    "/api%2flogin",
    "/api%2Flogin",
    "/%2fapi/login",
    "/%2Fapi%2Flogin%2F",
    "/x%2f..%2fapi%2flogin",
    "/x/..%2fapi/login",
    "/api/x%2f../y%2fz/../login",
    "/api\\login",
    "\\api\\login",
    "/\\api/login",
    "/api%5clogin",
    "/api%5Clogin",
    "/x\\..\\api\\login",
    "/x/..%5capi/login",
    "/x%5cy\\..\\api/login",
    "/x%2fy\\..\\api/login",
    "/api%2fx\\..%5clogin",
    "/api%3b%2flogin",
    "/API%2flogin",
    "/API%2F/./LOGIN;x=1/#y",
    "/%2e%2E%5CAPI;/%2e/login%20",
    "/api/login;x/.",
    "/api/login;%2f..",
    "/api/log%69n%2F",
    "/%2e%2e%2fapi%2flogin",
    "/api/login/%2e",
];

fn login() -> Policy {
    Policy::new("login").path("/api/login").quota("1/min")
}

fn is_for(policies: &Policies, path: &str) -> bool {
    policies.matching(&Facts::new(&Method::GET, path)).next().is_some()
}

fn readings(paths: PathReading, path: &str) -> Vec<String> {
    Policies::builder().path_reading(paths).build().unwrap().other_paths(path)
}

#[test]
fn every_spelling_is_counted_and_blocked() {
    let list = || AccessList::new().path("/api/login");
    for path in SPELLINGS.into_iter().filter(|path| path.starts_with('/')) {
        let policies = Policies::builder().policy(login()).build().unwrap();
        let gate = Gate::new(policies, MemoryStore::new());
        let facts = Facts::new(&Method::GET, path);
        assert_eq!(gate.check(&facts), Ok(()), "{path}");
        assert!(gate.decide_now(&facts).unwrap().is_allowed(), "{path}");
        let plain = Facts::new(&Method::GET, "/api/login");
        assert!(!gate.decide_now(&plain).unwrap().is_allowed(), "{path} was not counted");

        let blocking = Policies::builder().blocked(list()).build().unwrap();
        assert!(blocking.explain(&facts).blocked.is_some(), "{path} is not blocked");
    }
}

#[test]
fn an_exemption_needs_the_plain_spelling() {
    let exempt = AccessList::new().path("/api/login");
    let policies = Policies::builder().exempt(exempt).build().unwrap();
    for path in SPELLINGS {
        let is_exempt = policies.explain(&Facts::new(&Method::GET, path)).exempt.is_some();
        assert_eq!(is_exempt, ["/api/login", "/api/login?next=/"].contains(&path), "{path}");
    }
}

/// As they are written, with a slash at the end and capitals.
#[test]
fn an_exemption_is_as_it_is_written() {
    let exempt = AccessList::new().path("/static/").path("/Static/{*rest}").path("/caf%c3%a9");
    let policies = Policies::builder().exempt(exempt).build().unwrap();
    for (path, expected) in [
        ("/static/", true),
        ("/static", false),
        ("/Static/App.js", true),
        ("/Static/my%20file.pdf", true),
        ("/Static/a;v=1", true),
        ("/static/App.js", false),
        ("/caf%C3%A9", true),
        ("/caf%c3%a9", false),
    ] {
        let is_exempt = policies.explain(&Facts::new(&Method::GET, path)).exempt.is_some();
        assert_eq!(is_exempt, expected, "{path}");
    }
}

#[test]
fn what_is_another_path_to_every_server_is_not_counted() {
    let policies = Policies::builder().policy(login()).build().unwrap();
    for path in [
        "/",
        "/api",
        "/api/login/..",
        "/api/login/x",
        "/api/logins",
        "/api/log%20in",
        "/api/.login",
        "/api/login/...",
        "/x?/api/login",
        // Decoded once, not twice.
        "/api/%256cogin",
        "/api/%%36cogin",
        "*",
        "",
        "api/login",
    ] {
        assert!(!is_for(&policies, path), "{path}");
    }
}

#[test]
fn patterns_are_read_as_paths_are() {
    for (pattern, path) in [
        ("/login/", "/login"),
        ("/login/", "//login/"),
        ("/login/", "/%6cogin/"),
        ("/login/", "/login//"),
        ("/login/", "/./login/"),
        ("/Login", "/login"),
        ("/café", "/caf%c3%a9"),
        ("/café", "/café"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/a b", "/a%20b"),
        ("/jobs/{id}:cancel", "/jobs/7%3Acancel"),
        ("/@{name}/posts", "/%40bob/posts"),
        ("/users/{id}", "/USERS/a%2Fb"),
        ("/users/{id}/", "/users/42"),
        ("/search/{*words}", "/search/x//../../y"),
        ("/search/{*words}", "/%73earch//"),
    ] {
        let policy = Policy::new("p").path(pattern).quota("1/min");
        assert!(
            is_for(&Policies::builder().policy(policy).build().unwrap(), path),
            "{pattern} {path}"
        );
    }
    let both = Policy::new("p").path("/login").path("/login/").path("/LOGIN").quota("1/min");
    assert!(is_for(&Policies::builder().policy(both).build().unwrap(), "/login"));
}

#[test]
fn a_pattern_that_nothing_matches_is_an_error() {
    let list = || AccessList::new().path("//b");
    let policy = Policy::new("p").path("/a/../b").path("/x?y").exempt(list()).quota("1/min");
    let builder = Policies::builder().policy(policy).exempt(list()).blocked(list());
    let errors = builder.build().unwrap_err().to_string();
    let detour = "paths are matched without empty segments and dots: did you mean \"/b\"?";
    let query = "paths are matched without query and fragment: did you mean \"/x\"?";
    assert_eq!(
        errors.lines().collect::<Vec<_>>(),
        [
            &*format!("policy \"p\": path = \"/a/../b\": {detour}"),
            &*format!("policy \"p\": path = \"/x?y\": {query}"),
            &*format!("policy \"p\": exempt = \"//b\": {detour}"),
            &*format!("exempt: path = \"//b\": {detour}"),
            &*format!("blocked: path = \"//b\": {detour}"),
        ]
    );
}

#[test]
fn readings_can_be_switched_off() {
    let all = PathReading::default();
    for (paths, path) in [
        (all.matching_case(), "/api/LOGIN"),
        (all.keeping_encoded_slashes(), "/api%2flogin"),
        (all.keeping_backslashes(), "/api\\login"),
        (all.keeping_backslashes(), "/api%5Clogin"),
        (all.keeping_parameters(), "/api/login;x=1"),
    ] {
        let policies = Policies::builder().policy(login()).path_reading(paths).build().unwrap();
        assert!(!is_for(&policies, path), "{path}");
        assert!(is_for(&policies, "//api/./login/#x"));
        let policies = Policies::builder().policy(login()).build().unwrap();
        assert!(is_for(&policies, path), "{path}");
    }
    // Then a pattern with capitals is for paths with capitals.
    let policy = Policy::new("p").path("/Login").quota("1/min");
    let policies = Policies::builder().policy(policy).path_reading(all.matching_case());
    let policies = policies.build().unwrap();
    assert!(is_for(&policies, "/Login") && !is_for(&policies, "/login"));
}

#[test]
fn readings_are_the_path_after_each_step() {
    let paths = PathReading::default();
    assert_eq!(readings(paths, "/login"), [""; 0]);
    assert_eq!(readings(paths, "/Login"), ["/login"]);
    assert_eq!(readings(paths, "/a//b"), ["/a/b"]);
    assert_eq!(readings(paths, "/a;x/b"), ["/a/b"]);
    assert_eq!(readings(paths, "/a%2Fb"), ["/a/b"]);
    assert_eq!(readings(paths, "/a#b"), ["/a", "/a%23b"]);
    assert_eq!(readings(paths, "/a/../b"), ["/b"]);
    assert_eq!(readings(paths, "//a/../b"), ["//b", "/a/../b", "/b"]);
    assert_eq!(readings(paths, "/x/..;/a"), ["/a", "/x/../a"]);
    assert_eq!(readings(paths, "*"), [""; 0]);
}

#[test]
fn a_request_without_a_path_is_refused() {
    let policies = Policies::default();
    let check = |method: &Method, path| policies.check(&Facts::new(method, path));
    for path in ["", "api/login", "?x", "#x", "http://a/login", "\\login", "**"] {
        assert_eq!(check(&Method::GET, path), Err(BadRequest::NoPath), "{path}");
    }
    assert_eq!(check(&Method::OPTIONS, "*"), Ok(()));
    assert_eq!(check(&Method::CONNECT, "example.com:443"), Ok(()));
    assert_eq!(check(&Method::CONNECT, ""), Ok(()));
}

#[test]
fn a_path_with_too_many_readings_is_refused() {
    let policies = Policies::default();
    let check = |path: &str| policies.check(&Facts::new(&Method::GET, path));
    let path = "/e%20;z%20/..;x%20/..%20/c%2f..\\%20;/c%20//%20/e%5c%20;z#20/d%20;z/..%20;/..;x#\
                /..;z/%20/..";
    assert_eq!(check(path), Err(BadRequest::TooManyReadings));
    assert!(policies.other_paths(path).len() <= 64);
    // A long path may have few, and one with very many segments is good only if it is plain.
    let long = format!("/{}", "a".repeat(32_000));
    assert_eq!(check(&format!("{long}//A%2Fb")), Ok(()));
    assert_eq!(check(&format!("{long}//A%2Fb\\c;d/../#e")), Err(BadRequest::TooManyReadings));
    let deep = "/A".repeat(1000);
    assert_eq!(check(&deep), Ok(()));
    assert_eq!(check(&format!("{deep}//b")), Err(BadRequest::TooManyReadings));
    assert_eq!(check(&format!("{}//b", "/A".repeat(250))), Ok(()));
}

#[test]
fn a_path_has_one_normal_form_for_routing() {
    let paths = PathReading::default();
    for (sent, read) in [
        ("/", "/"),
        ("//", "/"),
        ("/..", "/"),
        ("/%2e%2e/%2e", "/"),
        ("/x/..;/login%20/", "/login"),
        ("/LOGIN", "/LOGIN"),
        ("/a%2fb%5c", "/a%2Fb%5C"),
        ("/%c3%a9", "/%C3%A9"),
        ("/é/%zz/%4", "/%C3%A9/%25zz/%254"),
        ("/%256cogin?x", "/%256cogin"),
        ("*", "*"),
        ("", ""),
    ] {
        assert_eq!(paths.normal_form(sent), read, "{sent}");
        assert_eq!(paths.normal_form(read), read, "{sent}");
        assert_eq!(paths.read(sent).normal_form(), read, "{sent}");
    }
    assert_eq!(paths.keeping_parameters().normal_form("/a;x//b"), "/a;x/b");
    for path in ["/", "/login", "/.well-known/x", "/a@b/~c", "/..x/x..", "/Login", "*", ""] {
        assert!(matches!(paths.normal_form(path), Cow::Borrowed(_)), "{path}");
    }
}

#[test]
fn readings_count_for_policies_that_read_paths_the_same_way() {
    let policies = |paths| Policies::builder().policy(login()).path_reading(paths).build().unwrap();
    let (any, exact) = (PathReading::default(), PathReading::default().matching_case());
    let is_for = |policies: &Policies, facts: &Facts<'_>| policies.matching(facts).next().is_some();
    for given in [any, exact] {
        let readings = given.read("/API/Login?next=%2F");
        let facts = Facts::new(&Method::GET, "/elsewhere").readings(&readings);
        assert!(is_for(&policies(any), &facts), "{given:?}");
        assert!(!is_for(&policies(exact), &facts), "{given:?}");
        assert!(policies(any).check(&facts).is_ok());
    }
    let readings = any.read("/x%00");
    let facts = Facts::new(&Method::GET, "/").readings(&readings);
    assert_eq!(policies(any).check(&facts), Err(BadRequest::ControlCharacter));
}
