//! What the promises say, worked out by brute force: every spend is kept for ever, every question
//! is answered by looking at all of them. It has nothing of the product but its words.

use std::collections::BTreeMap;

const MILLI_NS: u64 = 1_000_000;

/// At most `units` in any interval of length `window_ms`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) units: u32,
    pub(crate) window_ms: u64,
}

impl Limit {
    pub(crate) fn window_ns(self) -> u64 {
        self.window_ms * MILLI_NS
    }

    pub(crate) fn tick_ns(self) -> u64 {
        if self.units <= 4096 {
            return MILLI_NS;
        }
        let whole_ms = self.window_ms / 4096;
        let rest = u64::from(whole_ms * 4096 < self.window_ms);
        (whole_ms + rest) * MILLI_NS
    }

    /// The first tick at or after an instant.
    pub(crate) fn stamp_ns(self, now_ns: u64) -> u64 {
        let tick_before = now_ns - now_ns % self.tick_ns();
        if tick_before == now_ns { now_ns } else { tick_before + self.tick_ns() }
    }
}

/// How a charge takes part in a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Plain,
    CountDenied,
    Shadow,
    /// It is written down whether it fits or not, and may cost more than there is.
    Record,
}

/// What a request would take from one account.
#[derive(Debug, Clone)]
pub(crate) struct Charge {
    pub(crate) account: usize,
    pub(crate) limits: Vec<Limit>,
    pub(crate) cost: u32,
    pub(crate) kind: Kind,
}

impl Charge {
    /// A limit can be used up, and not more.
    fn in_limit(&self, limit: Limit) -> u32 {
        self.cost.min(limit.units)
    }
}

/// What is to be answered to a request: when, yes or no, and each limit of each charge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) at_ns: u64,
    pub(crate) spent: bool,
    pub(crate) standings: Vec<Standing>,
}

impl Answer {
    /// The instants that it says something will be free.
    pub(crate) fn leaving_ns(&self) -> Vec<u64> {
        let waits = self.standings.iter().flat_map(|s| [s.retry_after_ns, s.reset_after_ns]);
        waits.filter(|wait_ns| *wait_ns > 0).map(|wait_ns| self.at_ns + wait_ns).collect()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) remaining: u32,
    pub(crate) retry_after_ns: u64,
    pub(crate) reset_after_ns: u64,
}

/// All accounts: what each has spent under each of its windows.
#[derive(Debug, Default)]
pub(crate) struct Model {
    histories: BTreeMap<(usize, u64), History>,
    /// Whether something may have been recorded beyond a limit.
    has_records: bool,
}

impl Model {
    pub(crate) fn spend(&mut self, charges: &[Charge], now_ns: u64) -> Answer {
        self.has_records |= charges.iter().any(|charge| charge.kind == Kind::Record);
        let fitting: Vec<bool> = charges.iter().map(|c| self.fits(c, now_ns)).collect();
        let spent = self.passes(charges, now_ns);
        for (charge, fits) in charges.iter().zip(&fitting) {
            let recorded: Vec<Limit> = match charge.kind {
                Kind::Plain if spent => charge.limits.clone(),
                Kind::Shadow if spent && *fits => charge.limits.clone(),
                Kind::CountDenied if *fits => charge.limits.clone(),
                Kind::Record => charge.limits.clone(),
                // What it denied itself counts where there was no room.
                Kind::CountDenied => self.full(charge, now_ns),
                Kind::Plain | Kind::Shadow => Vec::new(),
            };
            self.record(&Charge { limits: recorded, ..charge.clone() }, now_ns);
        }
        let mut answer = self.look(charges, now_ns);
        answer.spent = spent;
        let done = charges.iter().zip(&fitting).map(|(c, fits)| (c.limits.len(), spent && *fits));
        let done = done.flat_map(|(limits, done)| std::iter::repeat_n(done, limits));
        for (standing, done) in answer.standings.iter_mut().zip(done) {
            if done {
                standing.retry_after_ns = 0;
            }
        }
        answer
    }

    pub(crate) fn look(&self, charges: &[Charge], now_ns: u64) -> Answer {
        let standings = charges.iter().flat_map(|charge| {
            charge.limits.iter().map(|limit| {
                let history = self.history(charge.account, *limit);
                history.standing(*limit, charge, now_ns, self.has_records)
            })
        });
        let (spent, standings) = (self.passes(charges, now_ns), standings.collect());
        Answer { at_ns: now_ns, spent, standings }
    }

    pub(crate) fn refund_newest(&mut self, charges: &[Charge], now_ns: u64) {
        self.each(charges, |history, limit, charge| {
            history.take_back(limit, charge.cost, now_ns, |_| true);
        });
    }

    pub(crate) fn refund_at(&mut self, charges: &[Charge], at_ns: u64, now_ns: u64) {
        self.each(charges, |history, limit, charge| {
            let stamp_ns = limit.stamp_ns(at_ns);
            history.take_back(limit, charge.cost, now_ns, |spend| spend.stamp_ns == stamp_ns);
        });
    }

    pub(crate) fn reset(&mut self, charges: &[Charge]) {
        for charge in charges {
            self.histories.retain(|(account, _), _| *account != charge.account);
        }
    }

    /// Every instant at which something of an account leaves a window.
    pub(crate) fn leaving_ns(&self, charge: &Charge, now_ns: u64) -> Vec<u64> {
        let leaving = charge.limits.iter().flat_map(|limit| {
            let history = self.history(charge.account, *limit);
            history.leaving_ns(*limit, now_ns)
        });
        leaving.collect()
    }

    fn passes(&self, charges: &[Charge], now_ns: u64) -> bool {
        charges.iter().all(|c| c.kind == Kind::Shadow || self.fits(c, now_ns))
    }

    fn fits(&self, charge: &Charge, now_ns: u64) -> bool {
        charge
            .limits
            .iter()
            .all(|limit| self.history(charge.account, *limit).fits(*limit, charge.cost, now_ns))
    }

    /// The limits that a charge does not fit into.
    fn full(&self, charge: &Charge, now_ns: u64) -> Vec<Limit> {
        let is_full = |limit: &&Limit| {
            !self.history(charge.account, **limit).fits(**limit, charge.cost, now_ns)
        };
        charge.limits.iter().filter(is_full).copied().collect()
    }

    fn record(&mut self, charge: &Charge, now_ns: u64) {
        self.each(std::slice::from_ref(charge), |history, limit, charge| {
            history.record(limit, charge.cost, now_ns);
        });
    }

    fn history(&self, account: usize, limit: Limit) -> History {
        self.histories.get(&(account, limit.window_ms)).cloned().unwrap_or_default()
    }

    fn each(&mut self, charges: &[Charge], change: impl Fn(&mut History, Limit, &Charge)) {
        for charge in charges {
            for limit in &charge.limits {
                let key = (charge.account, limit.window_ms);
                change(self.histories.entry(key).or_default(), *limit, charge);
            }
        }
    }
}

/// Every spend ever made from one account under one window, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    spends: Vec<Spend>,
}

#[derive(Debug, Clone, Copy)]
struct Spend {
    stamp_ns: u64,
    units: u32,
}

impl Spend {
    fn is_live(self, limit: Limit, now_ns: u64) -> bool {
        now_ns < self.stamp_ns + limit.window_ns()
    }
}

impl History {
    pub(crate) fn record(&mut self, limit: Limit, units: u32, now_ns: u64) {
        self.spends.push(Spend { stamp_ns: limit.stamp_ns(now_ns), units });
    }

    pub(crate) fn live_units(&self, limit: Limit, now_ns: u64) -> u64 {
        let live = self.spends.iter().filter(|spend| spend.is_live(limit, now_ns));
        live.map(|spend| u64::from(spend.units)).sum()
    }

    pub(crate) fn fits(&self, limit: Limit, cost: u32, now_ns: u64) -> bool {
        self.live_units(limit, now_ns) + u64::from(cost) <= u64::from(limit.units)
    }

    pub(crate) fn remaining(&self, limit: Limit, now_ns: u64) -> u32 {
        let left = u64::from(limit.units).saturating_sub(self.live_units(limit, now_ns));
        u32::try_from(left).expect("no more than the units")
    }

    /// Tries every instant at which something leaves, the earliest first.
    pub(crate) fn retry_after_ns(&self, limit: Limit, cost: u32, now_ns: u64) -> u64 {
        if self.fits(limit, cost, now_ns) {
            return 0;
        }
        let mut candidates = self.leaving_ns(limit, now_ns);
        candidates.sort_unstable();
        let at_ns = candidates.into_iter().find(|at_ns| self.fits(limit, cost, *at_ns));
        at_ns.expect("a cost within the units fits when all has left") - now_ns
    }

    fn standing(&self, limit: Limit, charge: &Charge, now_ns: u64, records: bool) -> Standing {
        let is_of_newest = records || charge.kind == Kind::CountDenied;
        Standing {
            remaining: self.remaining(limit, now_ns),
            retry_after_ns: self.retry_after_ns(limit, charge.in_limit(limit), now_ns),
            reset_after_ns: match is_of_newest {
                true => self.reset_after_of_newest_ns(limit, now_ns),
                false => self.reset_after_ns(limit, now_ns),
            },
        }
    }

    fn reset_after_ns(&self, limit: Limit, now_ns: u64) -> u64 {
        let first_ns = self.leaving_ns(limit, now_ns).into_iter().min();
        first_ns.map_or(0, |at_ns| at_ns - now_ns)
    }

    /// Denied requests and records are written down at the expense of the oldest units: of what is live, only as
    /// much as the limit has units can be called spent.
    fn reset_after_of_newest_ns(&self, limit: Limit, now_ns: u64) -> u64 {
        let mut units = 0;
        let mut first_ns = now_ns;
        for spend in self.spends.iter().rev().filter(|spend| spend.is_live(limit, now_ns)) {
            if units < u64::from(limit.units) {
                first_ns = spend.stamp_ns + limit.window_ns();
            }
            units += u64::from(spend.units);
        }
        first_ns - now_ns
    }

    fn leaving_ns(&self, limit: Limit, now_ns: u64) -> Vec<u64> {
        let live = self.spends.iter().filter(|spend| spend.is_live(limit, now_ns));
        live.map(|spend| spend.stamp_ns + limit.window_ns()).collect()
    }

    /// Takes back up to `units` of those live spends that are `meant`, the newest first.
    fn take_back(
        &mut self,
        limit: Limit,
        mut units: u32,
        now_ns: u64,
        meant: impl Fn(&Spend) -> bool,
    ) {
        for spend in self.spends.iter_mut().rev() {
            if spend.is_live(limit, now_ns) && meant(spend) {
                let taken = units.min(spend.units);
                spend.units -= taken;
                units -= taken;
            }
        }
        self.spends.retain(|spend| spend.units > 0);
    }
}

/// What was let through, by the true instants: nothing here is rounded.
#[derive(Debug, Clone, Default)]
pub(crate) struct Admitted(Vec<(u64, u32)>);

impl Admitted {
    pub(crate) fn add(&mut self, at_ns: u64, units: u32) {
        self.0.push((at_ns, units));
    }

    /// Adds what was admitted at an earlier instant.
    pub(crate) fn add_at(&mut self, at_ns: u64, units: u32) {
        let index = self.0.partition_point(|(other_ns, _)| *other_ns <= at_ns);
        self.0.insert(index, (at_ns, units));
    }

    /// Takes back what was admitted at an instant.
    pub(crate) fn take_back(&mut self, at_ns: u64, units: u32) {
        let found = self.0.iter().position(|admitted| *admitted == (at_ns, units));
        self.0.remove(found.expect("what is taken back was admitted"));
    }

    /// The units admitted after an instant.
    pub(crate) fn since(&self, after_ns: Option<u64>) -> u64 {
        let later = self.0.iter().filter(|(at_ns, _)| after_ns.is_none_or(|after| *at_ns > after));
        later.map(|(_, units)| u64::from(*units)).sum()
    }

    /// The most units in any half-open interval of this length. One that ends just after an event
    /// is enough for each event.
    pub(crate) fn most_within(&self, length_ns: u64) -> u64 {
        let ending_at = |end: usize| {
            let (end_ns, _) = self.0[end];
            let within = self.0[..=end].iter().filter(|(at_ns, _)| end_ns - at_ns < length_ns);
            within.map(|(_, units)| u64::from(*units)).sum()
        };
        (0..self.0.len()).map(ending_at).max().unwrap_or(0)
    }
}
