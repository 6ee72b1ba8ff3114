//! The services that are compared: the same axum router, bare and behind each middleware.

use axum::Router;
use axum::response::Response;
use axum::routing::get;
use http::{HeaderName, HeaderValue};
use slidegate::Quota;
use slidegate_tower::{Dialect, Headers, RateLimitLayer};
use tower::layer::util::Identity;
use tower::util::MapResponseLayer;
use tower_governor::GovernorLayer;
use tower_governor::governor::GovernorConfigBuilder;

/// The quota of every client: 100 in 60 seconds.
pub const UNITS: u32 = 100;
/// The same in governor's words: how long until a unit comes back.
const UNIT_EVERY_MS: u64 = 600;

/// A service under test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// No middleware.
    Bare,
    /// One that does nothing: what axum itself adds for any.
    Empty,
    /// One that decides nothing and adds what ours does, made beforehand: what five headers and
    /// something in the extensions cost at the least.
    ReadyMade,
    /// Ours as it comes, with five headers.
    Slidegate,
    /// Ours with as many headers as tower_governor has.
    SlidegateTwo,
    SlidegateSilent,
    /// tower_governor with its two headers.
    Governor,
    /// tower_governor as it comes, with no headers on what is allowed.
    GovernorSilent,
}

impl Service {
    pub const ALL: [Self; 8] = [
        Self::Bare,
        Self::Empty,
        Self::ReadyMade,
        Self::Slidegate,
        Self::SlidegateTwo,
        Self::SlidegateSilent,
        Self::Governor,
        Self::GovernorSilent,
    ];

    /// Whether it ever refuses.
    pub fn limits(self) -> bool {
        !matches!(self, Self::Bare | Self::Empty | Self::ReadyMade)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Empty => "empty layer",
            Self::ReadyMade => "5 ready headers, no decision",
            Self::Slidegate => "slidegate, 5 headers",
            Self::SlidegateTwo => "slidegate, 2 headers",
            Self::SlidegateSilent => "slidegate, no headers",
            Self::Governor => "tower_governor, 2 headers",
            Self::GovernorSilent => "tower_governor, no headers",
        }
    }

    /// A new router with nothing spent.
    pub fn router(self) -> Router {
        let bare = Router::new().route("/", get(async || "Hello, world!"));
        let ours = || RateLimitLayer::per_ip(Quota::per_minute(UNITS));
        let mut theirs = GovernorConfigBuilder::default();
        theirs.per_millisecond(UNIT_EVERY_MS).burst_size(UNITS);
        let good = "neither is zero";
        match self {
            Self::Bare => bare,
            Self::Empty => bare.layer(Identity::new()),
            Self::ReadyMade => bare.layer(MapResponseLayer::new(add_ready_made)),
            Self::Slidegate => bare.layer(ours()),
            Self::SlidegateTwo => bare.layer(ours().headers(Headers::new([Dialect::Draft11]))),
            Self::SlidegateSilent => bare.layer(ours().headers(Headers::none())),
            Self::Governor => {
                bare.layer(GovernorLayer::new(theirs.use_headers().finish().expect(good)))
            }
            Self::GovernorSilent => bare.layer(GovernorLayer::new(theirs.finish().expect(good))),
        }
    }
}

/// A box, as a decision is.
#[derive(Clone)]
struct InPlaceOfADecision(#[allow(dead_code, reason = "only its size matters")] Box<[u64; 55]>);

fn add_ready_made(mut response: Response) -> Response {
    let ready = [
        ("ratelimit-policy", "\"default\";q=100;w=60"),
        ("ratelimit", "\"default\";r=99;t=60"),
        ("x-ratelimit-limit", "100"),
        ("x-ratelimit-remaining", "99"),
        ("x-ratelimit-reset", "1794794552"),
    ];
    for (name, value) in ready {
        let headers = response.headers_mut();
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    response.extensions_mut().insert(InPlaceOfADecision(Box::new([0; 55])));
    response
}
