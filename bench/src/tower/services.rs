//! The services that are compared: the same axum router, bare and behind each middleware.

use axum::Router;
use axum::routing::get;
use slidegate::Quota;
use slidegate_tower::{Headers, RateLimitLayer};
use tower::layer::util::Identity;
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
    /// Ours as it comes, with five headers.
    Slidegate,
    SlidegateSilent,
    /// tower_governor with its two headers.
    Governor,
    /// tower_governor as it comes, with no headers on what is allowed.
    GovernorSilent,
}

impl Service {
    pub const ALL: [Self; 6] = [
        Self::Bare,
        Self::Empty,
        Self::Slidegate,
        Self::SlidegateSilent,
        Self::Governor,
        Self::GovernorSilent,
    ];

    /// Whether it ever refuses.
    pub fn limits(self) -> bool {
        !matches!(self, Self::Bare | Self::Empty)
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::Empty => "empty layer",
            Self::Slidegate => "slidegate, 5 headers",
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
            Self::Slidegate => bare.layer(ours()),
            Self::SlidegateSilent => bare.layer(ours().headers(Headers::none())),
            Self::Governor => {
                bare.layer(GovernorLayer::new(theirs.use_headers().finish().expect(good)))
            }
            Self::GovernorSilent => bare.layer(GovernorLayer::new(theirs.finish().expect(good))),
        }
    }
}
