//! An order with all that is known of it, and the text that it is kept as.

use std::net::IpAddr;
use std::num::NonZeroU32;

use sha2::{Digest, Sha256};
use slidegate::policy::Measure;
use slidegate::{Identity, Name};

/// What an operator does to accounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Forgets what was spent, once.
    Reset,
    /// In force until a time.
    Order(Measure),
    /// Ends an order early.
    Lift,
}

/// Whom an action is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) identity: Identity,
    /// All policies if none is named.
    pub(crate) policy: Option<Name>,
}

/// Who acts, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Motive {
    /// The address that the operator has; one on a Unix socket has none.
    pub(crate) by: Option<IpAddr>,
    pub(crate) reason: String,
}

/// An action that was taken: an order that is in force, or a reset or lift that others still have to
/// hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Filed {
    pub(crate) id: String,
    pub(crate) action: Action,
    pub(crate) target: Target,
    pub(crate) motive: Motive,
    /// Both by the calendar of the place where it is kept.
    pub(crate) given_ms: u64,
    pub(crate) until_ms: u64,
}

/// The form of the text. A text of another is left alone: a newer version may have written it.
const FORM: &str = "1";
/// As much of a digest as no two of ten thousand orders share.
const ID_BYTES: usize = 8;

impl Action {
    /// As it is called in the API, on the command line, in the audit trail and in metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Order(Measure::Grant(_)) => "grant",
            Self::Order(Measure::Exempt) => "exempt",
            Self::Order(Measure::Ban) => "ban",
            Self::Lift => "lift",
        }
    }

    /// How many units are granted, if any are.
    pub(crate) fn units(self) -> Option<NonZeroU32> {
        match self {
            Self::Order(Measure::Grant(units)) => Some(units),
            _ => None,
        }
    }

    fn read(word: &str, units: &str) -> Option<Self> {
        Some(match word {
            "reset" => Self::Reset,
            "grant" => Self::Order(Measure::Grant(units.parse().ok()?)),
            "exempt" => Self::Order(Measure::Exempt),
            "ban" => Self::Order(Measure::Ban),
            "lift" => Self::Lift,
            _ => return None,
        })
    }
}

impl Filed {
    /// What there can be only one of: a second ban of the same identity takes the place of the
    /// first, and a command that is repeated because its answer was lost does nothing twice.
    pub(crate) fn id_of(measure: Measure, target: &Target) -> String {
        let word = Action::Order(measure).word();
        let policy = target.policy.as_deref().unwrap_or_default();
        let digest = Sha256::digest(format!("{word}\n{}\n{policy}", target.identity));
        hex(&digest[..ID_BYTES])
    }

    /// Lines, because none of the parts can have a line's end in it. With the longest reason it is
    /// shorter than a notice may be.
    pub(super) fn text(&self) -> String {
        let units = self.action.units().map(|units| units.to_string()).unwrap_or_default();
        let by = self.motive.by.map(|by| by.to_string()).unwrap_or_default();
        [
            FORM,
            self.action.word(),
            self.target.identity.as_str(),
            self.target.policy.as_deref().unwrap_or_default(),
            &units,
            &by,
            &self.given_ms.to_string(),
            &self.motive.reason,
        ]
        .join("\n")
    }

    /// Reads what [`text`](Self::text) wrote; none if it is something else.
    pub(super) fn read(id: &str, text: &str, until_ms: u64) -> Option<Self> {
        let parts: Vec<&str> = text.split('\n').collect();
        let [FORM, word, identity, policy, units, by, given_ms, reason] = parts[..] else {
            return None;
        };
        let policy = (!policy.is_empty()).then(|| policy.parse()).transpose().ok()?;
        let by = (!by.is_empty()).then(|| by.parse()).transpose().ok()?;
        Some(Self {
            id: id.to_owned(),
            action: Action::read(word, units)?,
            target: Target { identity: identity.parse().ok()?, policy },
            motive: Motive { by, reason: reason.to_owned() },
            given_ms: given_ms.parse().ok()?,
            until_ms,
        })
    }

    pub(crate) fn measure(&self) -> Option<Measure> {
        match self.action {
            Action::Order(measure) => Some(measure),
            _ => None,
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use slidegate_redis::SharedMap;

    use super::*;

    fn filed(action: Action, policy: Option<&str>, reason: &str) -> Filed {
        let policy = policy.map(|policy| policy.parse().unwrap());
        Filed {
            id: "7".to_owned(),
            action,
            target: Target { identity: "user:42".parse().unwrap(), policy },
            motive: Motive { by: Some([10, 0, 0, 1].into()), reason: reason.to_owned() },
            given_ms: 1,
            until_ms: 2,
        }
    }

    #[test]
    fn texts_read_back() {
        let grant = Action::Order(Measure::Grant(NonZeroU32::MAX));
        let anonymous = Motive { by: None, reason: "a: b, \"c\" \u{fc}".to_owned() };
        for order in [
            filed(Action::Order(Measure::Ban), None, "scraper"),
            filed(grant, Some("api"), "a launch"),
            filed(Action::Reset, Some("api"), "x"),
            filed(Action::Lift, None, "x"),
            Filed { motive: anonymous, ..filed(Action::Order(Measure::Exempt), None, "") },
        ] {
            assert_eq!(Filed::read("7", &order.text(), 2), Some(order));
        }
    }

    #[test]
    fn the_longest_text_fits_a_notice() {
        let mut longest = filed(
            Action::Order(Measure::Grant(NonZeroU32::MAX)),
            Some(&"p".repeat(64)),
            &"\u{1f600}".repeat(200),
        );
        longest.target.identity = format!("user:{}", "u".repeat(58)).parse().unwrap();
        longest.motive.by = Some("1111:2222:3333:4444:5555:6666:7777:8888".parse().unwrap());
        longest.given_ms = 253_402_300_799_999;
        assert!(longest.text().len() <= SharedMap::MOST_TEXT_BYTES, "{}", longest.text().len());
    }

    #[test]
    fn what_is_not_an_order_is_left_alone() {
        let text = filed(Action::Order(Measure::Ban), None, "x").text();
        for text in [
            String::new(),
            "hello".to_owned(),
            text.replacen('1', "2", 1),
            text.replace("ban", "banish"),
            text.replace("ban", "grant"),
            text.replace("user:42", "nobody"),
            format!("{text}\nmore"),
        ] {
            assert_eq!(Filed::read("7", &text, 2), None, "{text}");
        }
    }

    #[test]
    fn one_order_of_a_kind_for_an_account() {
        let target = |identity: &str, policy: Option<&str>| Target {
            identity: identity.parse().unwrap(),
            policy: policy.map(|policy| policy.parse().unwrap()),
        };
        let one = Filed::id_of(Measure::Ban, &target("user:42", None));
        assert_eq!(one.len(), 16);
        assert_eq!(one, Filed::id_of(Measure::Ban, &target("user:42", None)));
        let grant = |units| Measure::Grant(NonZeroU32::new(units).unwrap());
        let own = target("user:42", Some("api"));
        assert_eq!(Filed::id_of(grant(1), &own), Filed::id_of(grant(2), &own));
        for (measure, target) in [
            (Measure::Exempt, target("user:42", None)),
            (Measure::Ban, target("user:43", None)),
            (Measure::Ban, target("user:42", Some("api"))),
        ] {
            assert_ne!(one, Filed::id_of(measure, &target));
        }
    }
}
