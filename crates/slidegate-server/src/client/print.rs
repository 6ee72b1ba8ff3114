//! The server's answers, printed for people.

use std::fmt::{self, Display};
use std::num::NonZeroU32;
use std::time::Duration;

use crate::api::{
    AccountList, AccountSort, AccountView, AccountsReset, IdentityView, OverrideCreated,
    OverrideLifted, OverrideList, OverrideView, QuotaView, ReloadChanges, ReloadPlan,
};
use slidegate::limit::Period;

impl Display for AccountList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.accounts.is_empty() {
            let none = "none: no account that this gateway has seen recently is near a quota or was \
                        denied";
            return writeln!(f, "{none}");
        }
        let denied = if self.sort == AccountSort::Candidate { "WOULD BE DENIED" } else { "DENIED" };
        let row = |account: &AccountView| {
            let share = |quota: &QuotaView| f64::from(quota.spent) / f64::from(quota.units.max(1));
            let tightest = account.quotas.iter().max_by(|a, b| share(a).total_cmp(&share(b)));
            let of = |text: fn(&QuotaView) -> String| tightest.map(text).unwrap_or_default();
            [
                ("IDENTITY", account.identity.clone()),
                ("POLICY", account.policy.clone()),
                ("PLAN", account.plan.clone().unwrap_or_default()),
                ("USED", format!("{:.0} %", (account.used * 100.0).floor())),
                ("QUOTA", of(|quota| quota.quota.clone())),
                ("SPENT", of(|quota| format!("{} of {}", quota.spent, quota.units))),
                ("NEXT FREE", of(|quota| time(quota.reset_after_ms))),
                (denied, account.denied()),
                ("STATE", account.state()),
            ]
        };
        f.write_str(&table(self.accounts.iter().map(row)))
    }
}

impl Display for IdentityView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.identity)?;
        let rows = self.accounts.iter().flat_map(|account| {
            account.quotas.iter().enumerate().map(move |(index, quota)| {
                // The account's own cells stand in its first row only.
                let own = |text: String| if index == 0 { text } else { String::new() };
                [
                    ("POLICY", own(account.policy.clone())),
                    ("PLAN", own(account.plan.clone().unwrap_or_default())),
                    ("QUOTA", quota.quota.clone()),
                    ("SPENT", quota.spent.to_string()),
                    ("REMAINING", quota.remaining.to_string()),
                    ("NEXT FREE", time(quota.reset_after_ms)),
                    ("STATE", own(account.state())),
                ]
            })
        });
        match self.accounts.is_empty() {
            true => writeln!(f, "no policy counts such an identity")?,
            false => f.write_str(&table(rows))?,
        }
        match self.overrides.is_empty() {
            true => Ok(()),
            false => write!(f, "\n{}", override_table(&self.overrides)),
        }
    }
}

impl AccountView {
    /// What else there is to know.
    fn state(&self) -> String {
        let mut all = Vec::new();
        all.extend(self.banned_for_ms.map(|ms| format!("banned for {}", time(ms))));
        all.extend(self.exempt_for_ms.map(|ms| format!("exempt for {}", time(ms))));
        for quota in self.quotas.iter().filter(|quota| quota.granted > 0) {
            all.push(format!("{} of {} granted", quota.granted, quota.quota));
        }
        for candidate in &self.candidate {
            let room = format!("{} left of {}", candidate.remaining, candidate.quota);
            all.push(format!("candidate {room}"));
        }
        all.extend(self.shadow.then(|| "shadow".to_owned()));
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

impl Display for OverrideList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.overrides.is_empty() {
            true => writeln!(f, "no overrides are in force")?,
            false => f.write_str(&override_table(&self.overrides))?,
        }
        match self.stale {
            true => writeln!(f, "\nRedis cannot be read: these were in force when it last could"),
            false => Ok(()),
        }
    }
}

impl Display for OverrideCreated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let created = &self.created;
        writeln!(f, "{} until {}", created.sentence(), created.until)?;
        if let Some(replaced) = &self.replaced {
            let units = replaced.units.map(|units| format!(" of {units} {}", unit_noun(units)));
            let units = units.unwrap_or_default();
            writeln!(f, "in place of the one{units} until {}", replaced.until)?;
        }
        for other in &self.others {
            writeln!(f, "also in force: {} until {}", other.sentence(), other.until)?;
        }
        if created.action != "ban" && self.others.iter().any(|other| other.action == "ban") {
            writeln!(f, "a ban outweighs it: lift the ban if it is not meant any more")?;
        }
        writeln!(f, "to end it early: slidegate lift {} --reason TEXT", created.id)
    }
}

impl Display for AccountsReset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (identity, nothing_spent) = (&self.reset, self.nothing_spent.join(", "));
        let mut spent = self.policies.clone();
        spent.retain(|policy| !self.nothing_spent.contains(policy));
        let spent = spent.join(", ");
        match (spent.as_str(), nothing_spent.as_str()) {
            (spent, "") => writeln!(f, "reset {identity} under {spent}"),
            ("", unspent) => {
                writeln!(f, "nothing to reset: {identity} has spent nothing under {unspent}")
            }
            (spent, unspent) => {
                writeln!(f, "reset {identity} under {spent}; it had spent nothing under {unspent}")
            }
        }
    }
}

impl Display for OverrideLifted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = time(self.lifted.ends_in_ms);
        writeln!(f, "lifted the {}; it had {rest} left", self.lifted.noun())
    }
}

impl Display for ReloadPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ReloadChanges { changes, history, restart } = &self.changes;
        if changes.is_empty() {
            writeln!(f, "no change of policies")?;
        }
        let restart: Vec<String> = restart.iter().map(|section| format!("[{section}]")).collect();
        let accounts: Vec<String> = self.accounts.over.iter().map(ToString::to_string).collect();
        for (heading, lines) in [
            ("a reload changes", changes),
            ("what accounts have spent", history),
            ("changed, but only a restart applies it", &restart),
            ("warnings", &self.warnings),
            (self.accounts.summary().as_str(), &accounts),
        ] {
            if lines.is_empty() {
                continue;
            }
            writeln!(f, "{heading}")?;
            lines.iter().try_for_each(|line| writeln!(f, "  {line}"))?;
        }
        if accounts.is_empty() && !changes.is_empty() {
            writeln!(f, "{}", self.accounts.summary())?;
        }
        Ok(())
    }
}

impl OverrideView {
    /// What it is, as part of a sentence about it.
    fn noun(&self) -> String {
        let identity = &self.identity;
        let what = match (self.action.as_str(), self.units) {
            ("ban", _) => format!("ban of {identity}"),
            ("exempt", _) => format!("exemption of {identity}"),
            (_, Some(units)) => {
                let (noun, quota) = (unit_noun(units), self.quota());
                format!("grant of {units} {noun} in {quota} to {identity}")
            }
            (other, None) => format!("{other} of {identity}"),
        };
        format!("{what} under {}", self.policy())
    }

    /// What is in force now.
    fn sentence(&self) -> String {
        let (identity, quota) = (&self.identity, self.quota());
        let what = match (self.action.as_str(), self.units) {
            ("ban", _) => format!("{identity} is banned"),
            ("exempt", _) => format!("{identity} is exempt"),
            (_, Some(units)) => {
                format!("{identity} has {units} more {} in {quota}", unit_noun(units))
            }
            (other, None) => format!("{other} of {identity}"),
        };
        format!("{what} under {}", self.policy())
    }

    fn policy(&self) -> &str {
        self.policy.as_deref().unwrap_or("every policy")
    }

    fn quota(&self) -> String {
        match self.quota.as_deref() {
            None | Some("all") => "each quota".to_owned(),
            Some(window) => format!("the quota per {window}"),
        }
    }
}

fn unit_noun(units: NonZeroU32) -> &'static str {
    if units.get() == 1 { "unit" } else { "units" }
}

fn override_table(overrides: &[OverrideView]) -> String {
    table(overrides.iter().map(|entry| {
        let units = entry.units.map(|units| format!(" {units}")).unwrap_or_default();
        [
            ("OVERRIDE", entry.id.clone()),
            ("ACTION", format!("{}{units}", entry.action)),
            ("IDENTITY", entry.identity.clone()),
            ("POLICY", entry.policy.clone().unwrap_or_else(|| "all".to_owned())),
            ("QUOTA", entry.quota.clone().unwrap_or_default()),
            ("ENDS IN", time(entry.ends_in_ms)),
            ("UNTIL", entry.until.to_string()),
            ("BY", entry.by.map(|by| by.to_string()).unwrap_or_default()),
            ("REASON", entry.reason.clone()),
        ]
    }))
}

/// A length of time for people.
pub(super) fn time(ms: u64) -> String {
    Period(Duration::from_millis(ms)).rounded().to_string()
}

/// Rows of cells, each with its column's heading. Columns are as wide as what stands in them, and
/// left out if nothing does.
pub(super) fn table<const N: usize>(
    rows: impl Iterator<Item = [(&'static str, String); N]>,
) -> String {
    let rows: Vec<_> = rows.collect();
    let widest = |column: usize| rows.iter().map(|row| row[column].1.chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| widest(column).unwrap_or(0));
    let headings = rows.iter().take(1).map(|row| row.each_ref().map(|(heading, _)| *heading));
    let cells = rows.iter().map(|row| row.each_ref().map(|(_, cell)| cell.as_str()));
    let line = |line: [&str; N]| {
        let columns = (0..N).filter(|column| widths[*column] > 0);
        let cells = columns.map(|column| {
            let width = widths[column].max(rows[0][column].0.len());
            format!("{:<width$}", line[column])
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    headings.chain(cells).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be_and_empty_ones_are_left_out() {
        let row = |a: &str, long: &str, c: &str| {
            [("A", a), ("EMPTY", ""), ("LONG", long), ("C", c)]
                .map(|(h, cell)| (h, cell.to_owned()))
        };
        let text = table([row("first", "x", "1"), row("\u{fc}", "longer", "")].into_iter());
        assert_eq!(text, "A      LONG    C\nfirst  x       1\n\u{fc}      longer\n");
    }
}
