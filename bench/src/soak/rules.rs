//! The policies of the run, and their units under each version of the configuration.

use std::net::SocketAddr;
use std::time::Duration;

use crate::harness::fill;

/// A policy, or one plan of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// By client address.
    Address,
    /// By API key, of the default plan and of a listed one, each with two windows.
    Free,
    Pro,
    /// Decided from prefetched units.
    Leased,
    /// By client address; only responses with 401 count.
    Login,
    /// Repeated denials start a ban.
    Scrape,
    /// Denied while Redis cannot count.
    Strict,
    /// Asked for through the decision API, with units that are held and settled.
    Tokens,
    /// Every request by client address, counted in the process.
    Flood,
}

/// The units of a window in each version.
#[derive(Debug, Clone, Copy)]
pub struct Window {
    pub length: Duration,
    pub units: [u32; VERSIONS],
}

/// Versions of the configuration, which differ in all units.
pub const VERSIONS: usize = 3;

/// Keys that are listed with the plan `pro`.
pub const LISTED_KEYS: u32 = 8;

impl Rule {
    const ALL: [Self; 9] = [
        Self::Address,
        Self::Free,
        Self::Pro,
        Self::Leased,
        Self::Login,
        Self::Scrape,
        Self::Strict,
        Self::Tokens,
        Self::Flood,
    ];

    pub fn windows(self) -> &'static [Window] {
        const fn window(seconds: u64, units: [u32; VERSIONS]) -> Window {
            Window { length: Duration::from_secs(seconds), units }
        }
        match self {
            Self::Address => const { &[window(5, [20, 30, 12])] },
            Self::Free => const { &[window(2, [10, 14, 6]), window(20, [60, 80, 40])] },
            Self::Pro => const { &[window(2, [40, 50, 30]), window(20, [240, 300, 160])] },
            Self::Leased => const { &[window(5, [100, 140, 70])] },
            Self::Login => const { &[window(5, [5, 8, 4])] },
            Self::Scrape => const { &[window(2, [5, 8, 4])] },
            Self::Strict => const { &[window(5, [15, 20, 10])] },
            Self::Tokens => const { &[window(5, [2000, 3000, 1200])] },
            Self::Flood => const { &[window(1, [40, 50, 30])] },
        }
    }

    /// The path of requests through the gateway.
    pub fn path(self) -> &'static str {
        match self {
            Self::Address | Self::Flood => "/address",
            Self::Free | Self::Pro => "/plan",
            Self::Leased => "/leased",
            Self::Login => "/login",
            Self::Scrape => "/scrape",
            Self::Strict => "/strict",
            Self::Tokens => "/tokens",
        }
    }

    /// Whether an account is one of an API key, not of an address.
    pub fn is_by_key(self) -> bool {
        matches!(self, Self::Free | Self::Pro | Self::Leased | Self::Scrape | Self::Strict)
    }

    /// The API key of an account.
    pub fn key(self, account: u32) -> String {
        match self {
            Self::Pro => listed_key(account),
            _ => format!("{self:?}-{account}-as-long-as-a-key"),
        }
    }

    /// Whether Redis has no part in it.
    pub fn is_local(self) -> bool {
        self == Self::Flood
    }

    /// The quotas in TOML.
    fn quotas(self, version: usize) -> String {
        let quota =
            |window: &Window| format!("{}/{}s", window.units[version], window.length.as_secs());
        format!("{:?}", self.windows().iter().map(quota).collect::<Vec<_>>())
    }
}

fn listed_key(number: u32) -> String {
    format!("listed-key-number-{number}")
}

/// The configuration in a version.
pub fn configuration(upstream: SocketAddr, redis: &str, version: usize) -> String {
    let key = |number| {
        let key = listed_key(number);
        format!("[[api_key]]\nname = \"listed-{number}\"\nkey = {key:?}\nplan = \"pro\"\n")
    };
    let rules = Rule::ALL.map(|rule| (format!("{rule:?}"), rule.quotas(version)));
    let mut blanks: Vec<(&str, String)> =
        rules.iter().map(|(name, quotas)| (name.as_str(), quotas.clone())).collect();
    blanks.push(("UPSTREAM", format!("http://{upstream}")));
    blanks.push(("REDIS", redis.to_owned()));
    blanks.push(("KEYS", (0..LISTED_KEYS).map(key).collect()));
    fill(include_str!("soak.toml"), &blanks)
}
