//! The density of spends as bars in a terminal.

use super::print::time;
use crate::api::{AccountDensity, DensityView, FreedUnits, QuotaDensity};
use crate::terminal::{FAINT, STRONG};

/// Lines of bars, each of which has eight steps.
const ROWS: u64 = 5;
pub(super) const STEPS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// The labels below the bars need this much.
const MIN_WIDTH: usize = 40;

/// Charts of all quotas, in lines of at most so many columns.
pub(super) fn chart(view: &DensityView, columns: usize) -> String {
    let mut text = format!("{STRONG}{}{STRONG:#}\n", view.identity);
    if view.accounts.is_empty() {
        text += "\nno policy counts such an identity\n";
    }
    for (account, quota) in view.quotas() {
        let heading = account.heading(quota);
        text += &format!("\n{STRONG}{heading}{STRONG:#}{}\n", account.note());
        text += &format!("{}\n\n{}", quota.free_words(), bars(quota, columns));
    }
    text
}

fn bars(quota: &QuotaDensity, columns: usize) -> String {
    let gutter = quota.spent.to_string().len();
    let room = columns.saturating_sub(gutter + 3).max(MIN_WIDTH);
    // As many buckets to a column as it takes, else as many columns to a bucket as there is room for.
    let buckets = quota.counts.len().max(1);
    let (together, wide) = (buckets.div_ceil(room), (room / buckets).max(1));
    let sum = |part: &[u32]| part.iter().copied().map(u64::from).sum();
    let counts: Vec<u64> = quota.counts.chunks(together).map(sum).collect();
    let highest = counts.iter().copied().max().unwrap_or(0).max(1);
    let mut text = String::new();
    for row in (0..ROWS).rev() {
        let label = if row == ROWS - 1 { highest.to_string() } else { String::new() };
        let step = |count: &u64| {
            let steps = (count * ROWS * 8).div_ceil(highest).saturating_sub(row * 8);
            STEPS[steps.min(8) as usize].to_string().repeat(wide)
        };
        let line: String = counts.iter().map(step).collect();
        text += &format!("{FAINT}{label:>gutter$} │{FAINT:#} {}\n", line.trim_end());
    }
    let width = counts.len() * wide;
    text += &format!("{FAINT}{:>gutter$} └{}{FAINT:#}\n", 0, "─".repeat(width + 1));
    for [left, middle, right] in quota.axis() {
        let gap = (width / 2).saturating_sub(left.len() + middle.len() / 2).max(1);
        let line = format!("{left}{:gap$}{middle}", "");
        let rest = width.saturating_sub(line.len()).max(right.len() + 1);
        text += &format!("{FAINT}{:gutter$}   {line}{right:>rest$}{FAINT:#}\n", "");
    }
    text
}

impl DensityView {
    /// All quotas, with their accounts.
    pub(super) fn quotas(&self) -> impl Iterator<Item = (&AccountDensity, &QuotaDensity)> {
        let accounts = self.accounts.iter();
        accounts.flat_map(|account| account.quotas.iter().map(move |quota| (account, quota)))
    }
}

impl AccountDensity {
    pub(super) fn heading(&self, quota: &QuotaDensity) -> String {
        let (policy, QuotaDensity { quota, spent, units, .. }) = (&self.policy, quota);
        let noun = if *units == 1 { "unit" } else { "units" };
        format!("{policy} {quota}: {spent} of {units} {noun} spent")
    }

    /// What else there is to know.
    pub(super) fn note(&self) -> &'static str {
        if self.degraded { " (as this process knows it, without the store)" } else { "" }
    }
}

impl QuotaDensity {
    /// When units come free: the first, half of them, and all, such as `3 units in 12s, 10 in 40s, all
    /// 20 in 58s`.
    pub(super) fn free_words(&self) -> String {
        let total: u64 = self.free.iter().map(|freed| u64::from(freed.units)).sum();
        let (mut so_far, mut words) = (0, Vec::new());
        for FreedUnits { units, after_ms } in &self.free {
            let before = so_far;
            so_far += u64::from(*units);
            let is_half = before * 2 < total && so_far * 2 >= total;
            if before == 0 || is_half || so_far == total {
                let all = if so_far == total { "all " } else { "" };
                let noun = match (words.is_empty(), so_far) {
                    (true, 1) => " unit",
                    (true, _) => " units",
                    (false, _) => "",
                };
                words.push(format!("{all}{so_far}{noun} in {}", time(*after_ms)));
            }
        }
        match words.is_empty() {
            true => "all units are free".to_owned(),
            false => format!("free again: {}", words.join(", ")),
        }
    }

    /// The labels below the bars, left, middle and right: when units were spent, and when those are
    /// free again, which is a window later.
    pub(super) fn axis(&self) -> [[String; 3]; 2] {
        let (window, half) = (time(self.window_ms), time(self.window_ms / 2));
        let now = || "now".to_owned();
        [
            [format!("spent {window} ago"), format!("{half} ago"), now()],
            ["free now".to_owned(), format!("in {half}"), format!("in {window}")],
        ]
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;

    fn quota(counts: &[u32], free: &[(u32, u64)]) -> QuotaDensity {
        let free = free.iter().map(|&(units, after_ms)| FreedUnits { units, after_ms }).collect();
        let spent = counts.iter().sum();
        let (quota, counts) = ("60/min".to_owned(), counts.to_vec());
        QuotaDensity { quota, units: 60, window_ms: 60_000, spent, counts, free }
    }

    #[test]
    fn bars_are_as_high_as_their_counts_and_fit_the_terminal() {
        let bars =
            |counts: &[u32], columns| strip_str(&bars(&quota(counts, &[]), columns)).to_string();
        let expected = "\
10 │ ██████████
   │ ██████████
   │ ██████████          ▄▄▄▄▄▄▄▄▄▄
   │ ██████████          ██████████
   │ ██████████          ██████████▄▄▄▄▄▄▄▄▄▄
 0 └─────────────────────────────────────────
     spent 1min ago   30s ago             now
     free now         in 30s          in 1min
";
        assert_eq!(bars(&[10, 0, 5, 1], 45), expected);
        for (buckets, columns) in [(60, 80), (60, 50), (1000, 80), (7, 200), (1, 80)] {
            let text = bars(&vec![1; buckets], columns);
            let longest = text.lines().map(|line| line.chars().count()).max();
            assert!(longest <= Some(columns), "{text}");
        }
    }

    #[test]
    fn a_few_instants_are_listed_and_the_last_of_them() {
        for (free, words) in [
            (&[][..], "all units are free"),
            (&[(1, 12_000)], "free again: all 1 unit in 12s"),
            (
                &[(3, 12_000), (7, 40_000), (2, 41_000), (1, 58_000)],
                "free again: 3 units in 12s, 10 in 40s, all 13 in 58s",
            ),
        ] {
            assert_eq!(quota(&[], free).free_words(), words);
        }
    }
}
