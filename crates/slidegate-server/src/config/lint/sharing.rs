//! Bans of identities that many clients may share.

use slidegate::Source;

use crate::config::warning::ConfigWarning;
use crate::config::written::{Written, WrittenPolicy};

pub(super) fn lint(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    for policy in &written.policies {
        let Some(shared) = shared(policy) else { continue };
        if let Some(ban) = &policy.ban {
            let text = format!("one client can have all others banned: they share {shared}");
            warnings.push(ConfigWarning::new(&ban.location, text));
        }
        if let Some(sourced) = policy.count_denied.as_ref().filter(|sourced| sourced.value) {
            let text = format!("one client can keep all others out: they share {shared}");
            warnings.push(ConfigWarning::new(&sourced.location, text));
        }
    }
}

/// The account that clients of the policy can share, if they can.
fn shared(policy: &WrittenPolicy) -> Option<&'static str> {
    let last = policy.identity.iter().find_map(|written| match written.source {
        Source::Everyone => Some(Some("the account everyone")),
        Source::Ip(_) => Some(None),
        _ => None,
    });
    last.unwrap_or(Some("the account anonymous, if they have none of the identities"))
}
