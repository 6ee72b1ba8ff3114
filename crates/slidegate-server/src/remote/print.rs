//! The server's answers, for people.

use std::fmt::Write as _;

use super::text_table::TextTable;
use crate::admin::views::{
    AccountList, AccountView, AccountsReset, IdentityView, OverrideCreated, OverrideLifted,
    OverrideList, OverrideView, QuotaView,
};

impl AccountList {
    pub(super) fn text(&self) -> String {
        if self.accounts.is_empty() {
            return "none: no account that this gateway has seen of late is near a quota or was \
                    denied\n"
                .to_owned();
        }
        let mut lines = TextTable::with(&[
            "IDENTITY",
            "POLICY",
            "PLAN",
            "USED",
            "QUOTA",
            "SPENT",
            "NEXT FREE",
            "DENIED",
            "STATE",
        ]);
        for account in &self.accounts {
            let tightest = account.quotas.iter().max_by(|a, b| a.share().total_cmp(&b.share()));
            let of = |text: fn(&QuotaView) -> String| tightest.map(text).unwrap_or_default();
            lines.push(vec![
                account.identity.clone(),
                account.policy.clone(),
                account.plan.clone().unwrap_or_default(),
                format!("{:.0} %", (account.used * 100.0).floor()),
                of(|quota| quota.quota.clone()),
                of(|quota| format!("{} of {}", quota.spent, quota.units)),
                of(|quota| time(quota.reset_after_ms)),
                account.denied(),
                account.state(),
            ]);
        }
        lines.text()
    }
}

impl IdentityView {
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.identity);
        if self.accounts.is_empty() {
            text.push_str("no policy counts such an identity\n");
        } else {
            text.push_str(&self.accounts());
        }
        if !self.overrides.is_empty() {
            let _ = write!(text, "\n{}", overrides(&self.overrides));
        }
        text
    }

    fn accounts(&self) -> String {
        let mut lines = TextTable::with(&[
            "POLICY",
            "PLAN",
            "QUOTA",
            "SPENT",
            "REMAINING",
            "NEXT FREE",
            "STATE",
        ]);
        for account in &self.accounts {
            let plan = account.plan.clone().unwrap_or_default();
            let mut first = vec![account.policy.clone(), plan];
            let mut state = account.state();
            for quota in &account.quotas {
                let mut row = std::mem::replace(&mut first, vec![String::new(), String::new()]);
                row.extend([
                    quota.quota.clone(),
                    quota.spent.to_string(),
                    quota.remaining.to_string(),
                    time(quota.reset_after_ms),
                    std::mem::take(&mut state),
                ]);
                lines.push(row);
            }
        }
        lines.text()
    }
}

impl AccountView {
    /// What else there is to know.
    fn state(&self) -> String {
        let mut all = Vec::new();
        all.extend(self.banned_for_ms.map(|ms| format!("banned for {}", time(ms))));
        all.extend(self.exempt_for_ms.map(|ms| format!("exempt for {}", time(ms))));
        all.extend((self.granted > 0).then(|| format!("{} granted", self.granted)));
        all.extend(self.shadow.then(|| "only watched".to_owned()));
        all.extend(self.degraded.then(|| "as this process knows it, without the store".to_owned()));
        all.join(", ")
    }

    fn denied(&self) -> String {
        match (self.denials, self.denials_overcount) {
            (Some(denials), None | Some(0)) => denials.to_string(),
            (Some(denials), Some(many)) => format!("{} to {denials}", denials.saturating_sub(many)),
            (None, _) => String::new(),
        }
    }
}

impl QuotaView {
    fn share(&self) -> f64 {
        f64::from(self.spent) / f64::from(self.units.max(1))
    }
}

impl OverrideList {
    pub(super) fn text(&self) -> String {
        let mut text = match self.overrides.as_slice() {
            [] => "no overrides are in force\n".to_owned(),
            all => overrides(all),
        };
        if self.stale {
            text.push_str("\nRedis cannot be read: these were in force when it last could\n");
        }
        text
    }
}

impl OverrideCreated {
    pub(super) fn text(&self) -> String {
        let created = &self.created;
        let mut text = format!("{} until {}\n", created.sentence(), created.until);
        if let Some(replaced) = &self.replaced {
            let units = replaced.units.map(|units| format!(" of {units} units"));
            let units = units.unwrap_or_default();
            let _ = writeln!(text, "in place of the one{units} until {}", replaced.until);
        }
        for other in &self.others {
            let _ = writeln!(text, "also in force: {} until {}", other.sentence(), other.until);
        }
        if created.action != "ban" && self.others.iter().any(|other| other.action == "ban") {
            text.push_str("a ban outweighs it: lift the ban if it is not meant any more\n");
        }
        let _ = writeln!(text, "to end it early: slidegate lift {} --reason TEXT", created.id);
        text
    }
}

impl AccountsReset {
    pub(super) fn text(&self) -> String {
        let (identity, nothing_spent) = (&self.reset, self.nothing_spent.join(", "));
        let is_unspent = |policy: &&str| self.nothing_spent.iter().any(|other| other == policy);
        let policies = self.policies.iter().map(String::as_str);
        let spent = policies.filter(|policy| !is_unspent(policy)).collect::<Vec<_>>().join(", ");
        match (spent.is_empty(), nothing_spent.is_empty()) {
            (true, false) => {
                format!("nothing to reset: {identity} has spent nothing under {nothing_spent}\n")
            }
            (_, true) => format!("reset {identity} under {spent}\n"),
            (false, false) => format!(
                "reset {identity} under {spent}; it had spent nothing under {nothing_spent}\n"
            ),
        }
    }
}

impl OverrideLifted {
    pub(super) fn text(&self) -> String {
        let rest = time(self.lifted.ends_in_ms);
        format!("lifted: {}; it had {rest} left\n", self.lifted.sentence())
    }
}

impl OverrideView {
    fn sentence(&self) -> String {
        let policy = self.policy.as_deref();
        let identity = &self.identity;
        let what = match (self.action.as_str(), self.units) {
            ("ban", _) => format!("{identity} is banned"),
            ("exempt", _) => format!("{identity} is exempt"),
            (_, Some(units)) => format!("{identity} has {units} more units in each quota"),
            (other, None) => format!("{other} of {identity}"),
        };
        match policy {
            Some(policy) => format!("{what} under {policy}"),
            None => format!("{what} under every policy"),
        }
    }
}

fn overrides(overrides: &[OverrideView]) -> String {
    let mut lines = TextTable::with(&[
        "OVERRIDE", "ACTION", "IDENTITY", "POLICY", "ENDS IN", "UNTIL", "BY", "REASON",
    ]);
    for entry in overrides {
        let units = entry.units.map(|units| format!(" {units}")).unwrap_or_default();
        lines.push(vec![
            entry.id.clone(),
            format!("{}{units}", entry.action),
            entry.identity.clone(),
            entry.policy.clone().unwrap_or_else(|| "all".to_owned()),
            time(entry.ends_in_ms),
            entry.until.to_string(),
            entry.by.map(|by| by.to_string()).unwrap_or_default(),
            entry.reason.clone(),
        ]);
    }
    lines.text()
}

/// A length of time in the two units that matter, rounded up to a second unless it is short.
fn time(ms: u64) -> String {
    let seconds = if ms < 10_000 { ms / 1000 } else { ms.div_ceil(1000) };
    let two = |whole: u64, unit: &str, rest: u64, smaller: &str| match rest {
        0 => format!("{whole}{unit}"),
        rest => format!("{whole}{unit} {rest}{smaller}"),
    };
    match seconds {
        0..=9 => format!("{}.{}s", seconds, ms % 1000 / 100),
        10..=59 => format!("{seconds}s"),
        60..=3599 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..=86_399 => two(seconds / 3600, "h", seconds % 3600 / 60, "min"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_in_two_units() {
        for (ms, text) in [
            (0, "0.0s"),
            (1234, "1.2s"),
            (9999, "9.9s"),
            (12_001, "13s"),
            (59_999, "1min"),
            (60_000, "1min"),
            (61_000, "1min 1s"),
            (3_600_000, "1h"),
            (5_400_000, "1h 30min"),
            (86_400_000, "1d"),
            (31_622_400_000, "366d"),
        ] {
            assert_eq!(time(ms), text);
        }
    }
}
