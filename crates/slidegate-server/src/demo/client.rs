//! The clients of the demo.

use std::net::Ipv4Addr;
use std::time::Duration;

use http::Method;

use super::sender::Call;

/// A client that sends requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    /// Keeps to the plan.
    Polite,
    /// A customer whose script has run wild.
    Script,
    /// Knows when counters start again.
    Burster,
    /// Tries passwords.
    Guesser,
}

/// Where a client's quotas are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Limit {
    Plan(&'static str),
    Policy(&'static str),
}

/// Requests of the script in all.
pub(super) const SCRIPT_REQUESTS: u32 = 50_000;

/// So many of them, a second's worth, come from one address: the flood guard cuts them.
const SCRIPT_FROM_ONE: u32 = 1667;

/// The others come from so many that none is fast enough for the flood guard: the plan cuts them.
const SCRIPT_ADDRESSES: u32 = 64;

/// A little slower than 60 a minute.
pub(super) const POLITE_PAUSE: Duration = Duration::from_millis(1100);

/// Of one burst, on each side of the boundary: the units of the policy `search`.
pub(super) const BURST: u32 = 20;

/// Guesses of one wave, which takes a second; a second of rest follows.
pub(super) const GUESSES: u32 = 70;

impl Client {
    pub(super) const ALL: [Self; 4] = [Self::Polite, Self::Script, Self::Burster, Self::Guesser];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Polite => "polite free user",
            Self::Script => "pro script",
            Self::Burster => "boundary burster",
            Self::Guesser => "login guesser",
        }
    }

    /// A short description.
    pub(super) fn about(self) -> String {
        match self {
            Self::Polite => format!("one request every {} s", POLITE_PAUSE.as_secs_f32()),
            Self::Script => {
                format!("50,000 requests from one address, then from {SCRIPT_ADDRESSES}")
            }
            Self::Burster => {
                format!("{BURST} searches just before each tenth second, {BURST} after")
            }
            Self::Guesser => format!("{GUESSES} passwords in a second, a second's rest, and again"),
        }
    }

    /// All that limits it, but for the flood guard, which is for addresses.
    pub(super) fn limits(self) -> &'static [Limit] {
        match self {
            Self::Polite => &[Limit::Plan("free")],
            Self::Script => &[Limit::Plan("pro")],
            Self::Burster => &[Limit::Plan("pro"), Limit::Policy("search")],
            Self::Guesser => &[Limit::Plan("free"), Limit::Policy("login")],
        }
    }

    /// What it asks for, the first time and every other.
    pub(super) fn call(self, index: u32) -> Call {
        let get = |path, key, address| Call { method: Method::GET, path, key: Some(key), address };
        match self {
            Self::Polite => get("/v1/reports", "free-key", Ipv4Addr::new(203, 0, 113, 7)),
            Self::Script => {
                let others = index.checked_sub(SCRIPT_FROM_ONE);
                let host = others.map_or(0, |index| 1 + index % SCRIPT_ADDRESSES);
                let network = u32::from(Ipv4Addr::new(198, 51, 100, 0));
                get("/v1/reports", "script-key", Ipv4Addr::from(network + host))
            }
            Self::Burster => get("/v1/search", "burster-key", Ipv4Addr::new(203, 0, 113, 20)),
            Self::Guesser => Call {
                method: Method::POST,
                path: "/login",
                key: None,
                address: Ipv4Addr::new(192, 0, 2, 66),
            },
        }
    }
}
