//! One override, reset or lift with its target, actor and dates, and its text form.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use sha2::{Digest, Sha256};
use slidegate::limit::Period;
use slidegate::policy::{Action, CheckedPolicy, Network, Prefixes};
use slidegate::{Account, Identity, Name, Policies, Quota, Source};

use super::OverrideError;
use crate::api::OverrideView;
use crate::calendar::Rfc3339;

/// What an operator does to an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OperatorAction {
    /// Clears the ledgers, once.
    Reset,
    /// Grants, exempts or bans until a time.
    Override(Action),
    /// Ends an override early.
    Lift,
}

/// The account or accounts that an action applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) identity: Identity,
    /// `None` for all policies.
    pub(crate) policy: Option<Name>,
}

/// Who acted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Actor {
    /// The operator's address; none on a Unix socket.
    pub(crate) by: Option<IpAddr>,
    pub(crate) reason: String,
}

/// When an override ends. Its own clock may be Redis's, so that only its service knows the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expiry {
    /// This many milliseconds after it is created.
    For(u64),
    /// At this instant, in Unix milliseconds.
    At(u64),
}

impl Expiry {
    /// The end, in Unix milliseconds.
    pub(crate) fn end_ms(self, now_ms: u64) -> u64 {
        match self {
            Self::For(lasting_ms) => now_ms.saturating_add(lasting_ms),
            Self::At(until_ms) => until_ms,
        }
    }
}

/// An action that was taken: an override in force, or a reset or lift that other gateways have yet to
/// apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverrideRecord {
    pub(crate) id: String,
    pub(crate) action: OperatorAction,
    pub(crate) target: Target,
    pub(crate) actor: Actor,
    /// Both by the clock of the overrides: Redis's if they are shared.
    pub(crate) created_ms: u64,
    pub(crate) until_ms: u64,
}

/// The version of the text form. Other versions are ignored: a newer release may have written them.
const FORMAT: &str = "1";
/// Enough of the digest to make ten thousand overrides unique.
const ID_BYTES: usize = 8;

impl OperatorAction {
    /// As it is called in the API, on the command line, in the audit trail and in metrics.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Override(Action::Grant { .. }) => "grant",
            Self::Override(Action::Exempt) => "exempt",
            Self::Override(Action::Ban) => "ban",
            Self::Lift => "lift",
        }
    }

    /// The units of a grant.
    pub(crate) fn units(self) -> Option<NonZeroU32> {
        match self {
            Self::Override(Action::Grant { units, .. }) => Some(units),
            _ => None,
        }
    }

    /// The window of the quota that a grant raises, such as `day`, or `all`.
    pub(crate) fn quota(self) -> Option<String> {
        match self {
            Self::Override(Action::Grant { window, .. }) => {
                Some(window.map_or_else(|| "all".to_owned(), window_text))
            }
            _ => None,
        }
    }

    /// The units of a grant, and the window after a slash if it is for one.
    fn units_text(self) -> String {
        match self {
            Self::Override(Action::Grant { units, window: Some(window) }) => {
                format!("{units}/{}", window_text(window))
            }
            action => action.units().map(|units| units.to_string()).unwrap_or_default(),
        }
    }

    fn parse(name: &str, units: &str) -> Option<Self> {
        Some(match name {
            "reset" => Self::Reset,
            "grant" => Self::Override(parse_grant(units)?),
            "exempt" => Self::Override(Action::Exempt),
            "ban" => Self::Override(Action::Ban),
            "lift" => Self::Lift,
            _ => return None,
        })
    }
}

/// Parses what [`units_text`](OperatorAction::units_text) wrote.
fn parse_grant(text: &str) -> Option<Action> {
    if text.contains('/') {
        let quota: Quota = text.parse().ok()?;
        return Some(Action::Grant { units: quota.units(), window: Some(quota.window()) });
    }
    Some(Action::Grant { units: text.parse().ok()?, window: None })
}

/// The window of a quota as the quota's text has it, after the slash.
pub(crate) fn window_text(window: Duration) -> String {
    format!("{:#}", Period(window))
}

impl Target {
    /// Whether it is the identity, its network, or all.
    pub(super) fn concerns(&self, identity: &Identity) -> bool {
        let target = &self.identity;
        let around = || {
            let network: Network = target.value().parse().ok()?;
            let address: IpAddr = identity.value().parse().ok()?;
            Some(target.kind() == "ip" && identity.kind() == "ip" && network.contains(address))
        };
        target == identity || target.kind() == "everyone" || around().unwrap_or_default()
    }

    /// The account under each policy, or under the one that is named. A network has accounts only
    /// if one of these policies counts addresses by just such networks.
    pub(super) fn accounts(&self, policies: &Policies) -> Result<Vec<Account>, OverrideError> {
        let selects = |checked: &&CheckedPolicy| {
            self.policy.as_ref().is_none_or(|policy| *policy == checked.name)
        };
        let meant: Vec<&CheckedPolicy> = policies.iter().filter(selects).collect();
        if let (Some(policy), []) = (&self.policy, &meant[..]) {
            return Err(OverrideError::unknown_policy(policy, policies));
        }
        let identity = self.identity;
        if let Some((address, _)) =
            identity.value().split_once('/').filter(|_| identity.kind() == "ip")
        {
            let counts = |source: &Source| match (source, address.parse()) {
                (Source::Ip(prefixes), Ok(address)) => Identity::ip(address, *prefixes) == identity,
                (Source::Descriptor(_), Ok(address)) => {
                    Identity::ip(address, Prefixes::default()) == identity
                }
                _ => false,
            };
            if !meant.iter().any(|policy| policy.identity.iter().any(counts)) {
                return Err(OverrideError::Network);
            }
        }
        let account = |checked: &CheckedPolicy| Account { policy: checked.name.clone(), identity };
        Ok(meant.into_iter().map(account).collect())
    }
}

impl OverrideRecord {
    /// The id. A second ban of the same identity replaces the first, and a command that is repeated
    /// because its answer was lost has no second effect. Grants for different quotas stand beside
    /// each other.
    pub(crate) fn id_of(action: Action, target: &Target) -> String {
        let name = OperatorAction::Override(action).name();
        let policy = target.policy.as_deref().unwrap_or_default();
        let quota = match action {
            Action::Grant { window: Some(window), .. } => format!("\n{}", window_text(window)),
            _ => String::new(),
        };
        let digest = Sha256::digest(format!("{name}\n{}\n{policy}{quota}", target.identity));
        digest[..ID_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The text form: one line for each part, because no part can contain a line break. With the
    /// longest reason it is shorter than a value in Redis may be.
    pub(in crate::shared) fn text(&self) -> String {
        let units = self.action.units_text();
        let by = self.actor.by.map(|by| by.to_string()).unwrap_or_default();
        [
            FORMAT,
            self.action.name(),
            self.target.identity.as_str(),
            self.target.policy.as_deref().unwrap_or_default(),
            &units,
            &by,
            &self.created_ms.to_string(),
            &self.actor.reason,
        ]
        .join("\n")
    }

    /// Parses what [`text`](Self::text) wrote; none if it is something else.
    pub(super) fn parse(id: &str, text: &str, until_ms: u64) -> Option<Self> {
        let parts: Vec<&str> = text.split('\n').collect();
        let [FORMAT, name, identity, policy, units, by, created_ms, reason] = parts[..] else {
            return None;
        };
        let policy = (!policy.is_empty()).then(|| policy.parse()).transpose().ok()?;
        let by = (!by.is_empty()).then(|| by.parse()).transpose().ok()?;
        Some(Self {
            id: id.to_owned(),
            action: OperatorAction::parse(name, units)?,
            target: Target { identity: identity.parse().ok()?, policy },
            actor: Actor { by, reason: reason.to_owned() },
            created_ms: created_ms.parse().ok()?,
            until_ms,
        })
    }
}

impl OverrideView {
    pub(crate) fn at(now_ms: u64, record: &OverrideRecord, policies: &Policies) -> Self {
        Self {
            id: record.id.clone(),
            action: record.action.name().to_owned(),
            identity: policies.shown(&record.target.identity).into_owned(),
            policy: record.target.policy.as_ref().map(ToString::to_string),
            units: record.action.units(),
            quota: record.action.quota(),
            until: Rfc3339::from_millis(record.until_ms),
            ends_in_ms: record.until_ms.saturating_sub(now_ms),
            reason: record.actor.reason.clone(),
            created: Rfc3339::from_millis(record.created_ms),
            by: record.actor.by,
        }
    }
}

#[cfg(test)]
mod tests {
    use slidegate_redis::SharedState;

    use super::*;

    fn filed(action: OperatorAction, policy: Option<&str>, reason: &str) -> OverrideRecord {
        let policy = policy.map(|policy| policy.parse().unwrap());
        OverrideRecord {
            id: "7".to_owned(),
            action,
            target: Target { identity: "user:42".parse().unwrap(), policy },
            actor: Actor { by: Some([10, 0, 0, 1].into()), reason: reason.to_owned() },
            created_ms: 1,
            until_ms: 2,
        }
    }

    #[test]
    fn texts_of_overrides_read_back() {
        let grant =
            |window| OperatorAction::Override(Action::Grant { units: NonZeroU32::MAX, window });
        let anonymous = Actor { by: None, reason: "a: b, \"c\" \u{fc}".to_owned() };
        for record in [
            filed(OperatorAction::Override(Action::Ban), None, "scraper"),
            filed(grant(None), Some("api"), "a launch"),
            filed(grant(Some(Duration::from_millis(1500))), Some("api"), "a launch"),
            filed(OperatorAction::Reset, Some("api"), "x"),
            filed(OperatorAction::Lift, None, "x"),
            OverrideRecord {
                actor: anonymous,
                ..filed(OperatorAction::Override(Action::Exempt), None, "")
            },
        ] {
            assert_eq!(OverrideRecord::parse("7", &record.text(), 2), Some(record));
        }
    }

    #[test]
    fn a_grant_written_before_it_could_name_a_quota_is_for_all() {
        let text = "1\ngrant\nuser:42\napi\n500\n10.0.0.1\n1\nx";
        let units = NonZeroU32::new(500).unwrap();
        let grant = OperatorAction::Override(Action::Grant { units, window: None });
        assert_eq!(OverrideRecord::parse("7", text, 2), Some(filed(grant, Some("api"), "x")));
    }

    #[test]
    fn an_override_with_the_longest_text_fits_an_entry() {
        let mut longest = filed(
            OperatorAction::Override(Action::Grant {
                units: NonZeroU32::MAX,
                window: Some(Quota::MAX_WINDOW - Duration::from_millis(1)),
            }),
            Some(&"p".repeat(64)),
            &"\u{1f600}".repeat(200),
        );
        longest.target.identity = format!("user:{}", "u".repeat(58)).parse().unwrap();
        longest.actor.by = Some("1111:2222:3333:4444:5555:6666:7777:8888".parse().unwrap());
        longest.created_ms = 253_402_300_799_999;
        assert!(longest.text().len() <= SharedState::MAX_TEXT_BYTES, "{}", longest.text().len());
    }

    #[test]
    fn what_is_not_an_override_is_left_alone() {
        let text = filed(OperatorAction::Override(Action::Ban), None, "x").text();
        for text in [
            String::new(),
            "hello".to_owned(),
            text.replacen('1', "2", 1),
            text.replace("ban", "banish"),
            text.replace("ban", "grant"),
            text.replace("ban", "grant").replace("\n\n\n", "\n\n5/fortnight\n"),
            text.replace("user:42", "nobody"),
            format!("{text}\nmore"),
        ] {
            assert_eq!(OverrideRecord::parse("7", &text, 2), None, "{text}");
        }
    }

    #[test]
    fn one_override_of_a_kind_for_an_account() {
        let target = |identity: &str, policy: Option<&str>| Target {
            identity: identity.parse().unwrap(),
            policy: policy.map(|policy| policy.parse().unwrap()),
        };
        let one = OverrideRecord::id_of(Action::Ban, &target("user:42", None));
        assert_eq!(one.len(), 16);
        assert_eq!(one, OverrideRecord::id_of(Action::Ban, &target("user:42", None)));
        let own = target("user:42", Some("api"));
        let grant = |units, window| {
            let action = Action::Grant { units: NonZeroU32::new(units).unwrap(), window };
            OverrideRecord::id_of(action, &own)
        };
        let minute = Some(Duration::from_secs(60));
        assert_eq!(grant(1, None), grant(2, None));
        assert_eq!(grant(1, minute), grant(2, minute));
        assert_ne!(grant(1, None), grant(1, minute));
        for (action, target) in [
            (Action::Exempt, target("user:42", None)),
            (Action::Ban, target("user:43", None)),
            (Action::Ban, target("user:42", Some("api"))),
        ] {
            assert_ne!(one, OverrideRecord::id_of(action, &target));
        }
    }
}
