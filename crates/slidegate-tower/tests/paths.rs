//! Paths that are written in a roundabout way: what they mean, and that none evades a policy.

use std::convert::Infallible;

use crate::support::{CLIENT, Slow, gate, policies};
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::Empty;
use slidegate::policy::{PathReading, PoliciesBuilder};
use slidegate::{AccessList, Gate, ManualClock, MemoryStore, Policy, Quota, Store};
use slidegate_tower::{Peer, RateLimitLayer};
use tower::{Layer, ServiceExt, service_fn};

/// Each is `/login` to some service.
const DODGES: [&str; 36] = [
    "/login/",
    "//login",
    "///login//",
    "/./login",
    "/login/.",
    "/../login",
    "/../../login",
    "/api/../login",
    "/api/v1/../../login",
    "/api//../login",
    "/api/..//login",
    "/login/x/..",
    "/%6cogin",
    "/%6Cogin",
    "/%6c%6f%67%69%6e",
    "/%2e/login",
    "/%2E%2e/login",
    "/api/%2e%2e/login",
    "/api/.%2e/login",
    "/login/%2e",
    "/login?next=/",
    "/%6cogin/?",
    "/login;x=1",
    "/login;",
    "/login;a=b;c",
    "/;x=1/login",
    "/x/..;/login",
    "/x/..;a=b/login",
    "/x/%2e%2e;/login",
    "/login%3bx=1",
    "/login%20",
    "/login%20%20/",
    "/login%20;x=1",
    "/x/..%20/login",
    "/x/..%20;y/login",
    "/.;/login",
];

/// Whether the gate lets the request through, and which path the inner service saw.
async fn send<S: Store>(layer: &RateLimitLayer<S>, method: Method, uri: &str) -> (u16, String) {
    let inner = service_fn(async |request: Request<()>| {
        let mut response = Response::new(Empty::<Bytes>::new());
        response.extensions_mut().insert(request.uri().to_string());
        Ok::<_, Infallible>(response)
    });
    let peer = Peer(CLIENT.parse().unwrap());
    let request = Request::builder().method(method).uri(uri).extension(peer).body(()).unwrap();
    let response = layer.layer(inner).oneshot(request).await.unwrap();
    let seen = response.extensions().get::<String>().cloned().unwrap_or_default();
    (response.status().as_u16(), seen)
}

fn login() -> PoliciesBuilder {
    policies([Policy::new("login").path("/login").quota(Quota::per_minute(1))])
}

fn limits(policies: PoliciesBuilder) -> RateLimitLayer {
    RateLimitLayer::new(gate(&ManualClock::default(), policies))
}

#[tokio::test]
async fn no_dodge_gets_around_a_policy() {
    for dodge in DODGES {
        let layer = limits(login());
        let first = send(&layer, Method::GET, dodge).await;
        assert_eq!(first, (200, dodge.to_owned()), "the inner service gets it as it came");
        assert_eq!(send(&layer, Method::GET, "/login").await.0, 429, "{dodge} was counted");
        assert_eq!(send(&layer, Method::GET, dodge).await.0, 429, "{dodge}");
    }
}

#[tokio::test]
async fn no_dodge_gets_around_a_policy_with_a_store_that_awaits() {
    let gate = Gate::new(login().build().unwrap(), Slow(MemoryStore::new()));
    let layer = RateLimitLayer::new(gate);
    for status in [200, 429] {
        assert_eq!(send(&layer, Method::GET, "/%6cogin/").await.0, status);
    }
}

#[tokio::test]
async fn readings_are_those_of_the_policies() {
    let paths = PathReading::default().matching_case();
    for (policies, refused) in [(login(), 429), (login().path_reading(paths), 200)] {
        let layer = limits(policies);
        for status in [200, refused] {
            assert_eq!(send(&layer, Method::GET, "/LOGIN").await.0, status);
        }
    }
}

/// A proxy resolves the dots, and the service behind it cuts and trims what is left.
#[tokio::test]
async fn no_chain_of_services_leads_around_a_policy() {
    let policy = Policy::new("login").path("/api/login").quota(Quota::per_minute(1));
    for path in [
        "/api/..;x/../login;y",
        "/api/..%3bx/../login%3by",
        "/api/..%20/../login%20",
        "/api/x/..;/../..%20/login;",
        // Back to where it was for a service that trims spaces, but not for one that cuts only.
        "/api/..;a/../..%20/..;/login;y",
    ] {
        let layer = limits(policies([policy.clone()]));
        for status in [200, 429] {
            assert_eq!(send(&layer, Method::GET, path).await.0, status, "{path}");
        }
    }
}

/// A service that goes by the path as it came runs the search; one that resolves it does not.
#[tokio::test]
async fn a_detour_does_not_lead_out_of_a_policy_either() {
    let search = Policy::new("search").path("/search/{*words}").quota(Quota::per_minute(1));
    let layer = limits(policies([search]));
    for status in [200, 429] {
        assert_eq!(send(&layer, Method::GET, "/search/costly/../../x").await.0, status);
    }
}

#[tokio::test]
async fn a_detour_does_not_lead_into_an_exemption() {
    let exempt = AccessList::new().path("/healthz");
    let api = || policies([Policy::new("api").quota(Quota::per_minute(1))]);
    for path in ["/api/../healthz", "/%68ealthz", "/healthz/"] {
        let layer = limits(api().exempt(exempt.clone()));
        for status in [200, 429] {
            assert_eq!(send(&layer, Method::GET, path).await.0, status, "{path}");
        }
        assert_eq!(send(&layer, Method::GET, "/healthz").await.0, 200);
    }
    let layer = limits(api().blocked(exempt));
    for path in ["/api/../healthz", "/%68ealthz", "/healthz/", "/healthz"] {
        assert_eq!(send(&layer, Method::GET, path).await.0, 403, "{path}");
    }
}

#[tokio::test]
async fn an_exemption_covers_no_path_that_leaves_it() {
    let exempt = AccessList::new().path("/static/{*rest}");
    let api = || policies([Policy::new("api").quota(Quota::per_minute(1))]);
    for path in [
        "/static/../login",
        "/static/%2e%2e/login",
        "/static/..;/login",
        "/static/..;x=1/login",
        "/static/..%2flogin",
        "/static/x%5c..%5c..%5clogin",
        "/static/%252e%252e/login",
        "/static/..%252flogin",
        "/static/..%20/login",
        "/static/..%c0%af..%c0%aflogin",
        "/static/%c0%ae%c0%ae/login",
        "/static/%25c0%25ae%C0%AE/login",
        // Out by a backslash, and back in by what is encoded twice.
        "/static/x%5c..%5c..%5clogin/%252e%252e/static/x",
    ] {
        let layer = limits(api().exempt(exempt.clone()));
        for status in [200, 429] {
            assert_eq!(send(&layer, Method::GET, path).await.0, status, "{path}");
        }
        for inside in
            ["/static/app.js", "/static/a/my%20file.pdf", "/static/a;v=1", "/static/%c3%a9"]
        {
            assert_eq!(send(&layer, Method::GET, inside).await.0, 200, "{inside}");
        }
    }
}

#[tokio::test]
async fn control_characters_are_refused() {
    let layer = limits(login());
    for path in ["/login%00", "/%00/login", "/login%0a", "/login%0D%0A", "/a%1fb", "/a%7F", "/a%09"]
    {
        assert_eq!(send(&layer, Method::GET, path).await.0, 400, "{path}");
    }
    for path in ["/a%20b", "/a%2500", "/a%80", "/a%7", "/a?b=%00"] {
        assert_eq!(send(&layer, Method::GET, path).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn requests_without_a_path_pass_and_are_counted() {
    let everything = Policy::new("everything").quota(Quota::per_minute(2));
    let layer = limits(policies([everything]));
    assert_eq!(send(&layer, Method::OPTIONS, "*").await, (200, "*".to_owned()));
    let tunnel = "example.com:443";
    assert_eq!(send(&layer, Method::CONNECT, tunnel).await, (200, tunnel.to_owned()));
    assert_eq!(send(&layer, Method::OPTIONS, "*").await.0, 429);
}
