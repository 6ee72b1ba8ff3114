//! The promises, as properties: random histories through the memory store and the ledger, held
//! against a brute-force model and against the true instants of what was admitted.

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestCaseResult};
use slidegate::limit::{
    Charge, Charges, Ledger, Once, Quotas, Receipt, Settled, Settlement, Spent,
};
use slidegate::{Clock, Identity, ManualClock, MemoryStore, Name, Quota, Timestamp};

use crate::model::{self, Admitted, Answer, History, Kind, Limit, Model, Standing};

const MILLI_NS: u64 = 1_000_000;
const DAY_MS: u64 = 86_400_000;
/// A whole day of 2026, as good as any.
const START_NS: u64 = 1_767_225_600_000 * MILLI_NS;

/// Who there is, and everything that happens.
#[derive(Debug, Clone)]
struct Story {
    start_ns: u64,
    accounts: Vec<AccountSpec>,
    steps: Vec<Step>,
}

/// An account and its windows. Each window has one or more units, which steps choose from.
#[derive(Debug, Clone)]
struct AccountSpec {
    kind: Kind,
    windows: Vec<(u64, Vec<u32>)>,
}

#[derive(Debug, Clone)]
struct Step {
    advance: Advance,
    request: Request,
    call: Call,
}

/// How far the clock moves before a call.
#[derive(Debug, Clone, Copy)]
enum Advance {
    None,
    Nanos(u64),
    /// So many 16ths of a window, and some nanoseconds.
    Window(u64, u64),
    /// To a tick of the account's first window and some nanoseconds on or back.
    Tick(u64, i64),
    /// To where a spent unit leaves a window, and some nanoseconds on or back.
    Leaving(prop::sample::Index, i64),
}

/// Which accounts a request charges, what share of the units it costs, and which units are in
/// force.
#[derive(Debug, Clone)]
struct Request {
    accounts: u8,
    costs: [Cost; 4],
    units: prop::sample::Index,
}

#[derive(Debug, Clone, Copy)]
enum Cost {
    One,
    Percent(u32),
}

#[derive(Debug, Clone, Copy)]
enum Call {
    Spend,
    Peek,
    RefundNewest,
    /// Of an earlier call, spent or not.
    RefundAt(prop::sample::Index),
    Reset,
    /// Of so many times the cost.
    Record(u32),
}

impl Story {
    /// The charges of a request, in the model's words.
    fn charges(&self, request: &Request) -> Vec<model::Charge> {
        let charged = |i: &usize| request.accounts & (1 << i) != 0;
        let mut accounts: Vec<usize> = (0..self.accounts.len()).filter(charged).collect();
        if accounts.is_empty() {
            accounts.push(usize::from(request.accounts) % self.accounts.len());
        }
        accounts.into_iter().map(|account| self.charge(account, request)).collect()
    }

    fn charge(&self, account: usize, request: &Request) -> model::Charge {
        let AccountSpec { kind, windows } = &self.accounts[account];
        let limits: Vec<Limit> = windows
            .iter()
            .map(|(window_ms, units)| Limit {
                units: *request.units.get(units),
                window_ms: *window_ms,
            })
            .collect();
        let fewest = limits.iter().map(|limit| limit.units).min().expect("a window");
        let cost = match request.costs[account] {
            Cost::One => 1,
            Cost::Percent(percent) => (u64::from(fewest) * u64::from(percent)).div_ceil(100) as u32,
        };
        model::Charge { account, limits, cost, kind: *kind }
    }

    /// An earlier charge under the units that are in force now, as far as they allow its cost.
    fn reprice(&self, charge: &model::Charge, request: &Request) -> model::Charge {
        let limits = self.charge(charge.account, request).limits;
        let fewest = limits.iter().map(|limit| limit.units).min().expect("a window");
        model::Charge { limits, cost: charge.cost.min(fewest), ..charge.clone() }
    }
}

impl Advance {
    /// Where the clock is to go; `leaving_ns` are instants at which units leave.
    fn after_ns(self, now_ns: u64, charge: &model::Charge, leaving_ns: &[u64]) -> u64 {
        let (first, last) = (charge.limits[0], charge.limits[charge.limits.len() - 1]);
        let to_ns = match self {
            Self::None => now_ns,
            Self::Nanos(ns) => now_ns + ns,
            Self::Window(sixteenths, ns) => now_ns + last.window_ns() / 16 * sixteenths + ns,
            Self::Tick(ticks, ns) => {
                let tick_ns = now_ns.next_multiple_of(first.tick_ns()) + ticks * first.tick_ns();
                tick_ns.saturating_add_signed(ns)
            }
            Self::Leaving(_, _) if leaving_ns.is_empty() => now_ns,
            Self::Leaving(index, ns) => index.get(leaving_ns).saturating_add_signed(ns),
        };
        to_ns.max(now_ns)
    }
}

/// A memory store on a clock of its own, asked in the model's words.
struct Subject {
    clock: ManualClock,
    store: MemoryStore,
    names: Vec<(Name, Identity)>,
}

impl Subject {
    fn new(story: &Story) -> Self {
        let clock = ManualClock::new(Timestamp::from_nanos(story.start_ns));
        Self::on(clock, story.accounts.len())
    }

    fn on(clock: ManualClock, accounts: usize) -> Self {
        let store = MemoryStore::builder().capacity(4096).clock(clock.clone()).build();
        let name = |i: usize| {
            let policy = format!("policy-{}", i % 3).parse().expect("a name");
            (policy, Identity::user(&format!("customer-{}", i / 2)))
        };
        Self { clock, store, names: (0..accounts).map(name).collect() }
    }

    fn set_ns(&self, now_ns: u64) {
        self.clock.set(Timestamp::from_nanos(now_ns));
    }

    fn spend(&self, charges: &[model::Charge]) -> Answer {
        self.with(charges, |c| answer(c, &self.store.spend_now(c).expect("room")))
    }

    fn peek(&self, charges: &[model::Charge]) -> Answer {
        self.with(charges, |c| answer(c, &self.store.peek_now(c).expect("room")))
    }

    fn refund(&self, charges: &[model::Charge], spent: Spent) {
        self.with(charges, |c| self.store.refund_now(c, spent));
    }

    fn reset(&self, charges: &[model::Charge]) {
        self.with(charges, |c| self.store.reset_now(c));
    }

    fn with<T>(&self, charges: &[model::Charge], ask: impl FnOnce(&Charges<'_>) -> T) -> T {
        let quotas: Vec<Quotas> = charges.iter().map(quotas).collect();
        let mut list = Charges::new();
        for (charge, quotas) in charges.iter().zip(&quotas) {
            let (policy, identity) = &self.names[charge.account];
            let (made, cost) =
                (Charge::new(policy, identity, quotas), NonZeroU32::new(charge.cost));
            let cost = cost.expect("a cost");
            let fitting = || made.with_cost(cost).expect("a cost within the units");
            let made = match charge.kind {
                Kind::Plain => fitting(),
                Kind::CountDenied => fitting().count_denied(true),
                Kind::Shadow => fitting().shadow(true),
                Kind::Record => made.record(cost),
            };
            list.push(made).expect("accounts that differ");
        }
        ask(&list)
    }
}

fn quota(limit: Limit) -> Quota {
    let units = NonZeroU32::new(limit.units).expect("units");
    Quota::new(units, Duration::from_millis(limit.window_ms)).expect("a window")
}

fn quotas(charge: &model::Charge) -> Quotas {
    Quotas::new(charge.limits.iter().map(|limit| quota(*limit))).expect("windows that differ")
}

/// A receipt in the model's words.
fn answer(charges: &Charges<'_>, receipt: &Receipt) -> Answer {
    assert!(!receipt.degraded);
    let asked = charges.as_slice().iter().flat_map(|charge| charge.quotas().as_slice());
    assert!(receipt.standings.iter().map(slidegate::Standing::quota).eq(asked.copied()));
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).expect("under 584 years");
    let standings = receipt.standings.iter().map(|standing| Standing {
        remaining: standing.remaining(),
        retry_after_ns: nanos(standing.retry_after()),
        reset_after_ns: nanos(standing.reset_after()),
    });
    let (at_ns, standings) = (receipt.at.as_nanos(), standings.collect());
    Answer { at_ns, spent: receipt.spent, standings }
}

/// How long a denied client has to wait: the longest `retry_after`.
fn retry_after_ns(charges: &[model::Charge], answer: &Answer) -> u64 {
    let binding = charges
        .iter()
        .flat_map(|charge| std::iter::repeat_n(charge.kind != Kind::Shadow, charge.limits.len()));
    let waits = answer.standings.iter().zip(binding).filter(|(_, binds)| *binds);
    waits.map(|(standing, _)| standing.retry_after_ns).max().expect("a charge that binds")
}

/// What each account has been let through, for each of its windows, by the true instants.
struct Witness {
    accounts: Vec<Admitted>,
}

impl Witness {
    fn new(story: &Story) -> Self {
        Self { accounts: vec![Admitted::default(); story.accounts.len()] }
    }

    fn note(&mut self, charges: &[model::Charge], answer: &Answer, at_ns: u64) {
        let mut standings = answer.standings.iter();
        for charge in charges {
            let own: Vec<_> = standings.by_ref().take(charge.limits.len()).collect();
            if answer.spent && own.iter().all(|standing| standing.retry_after_ns == 0) {
                self.accounts[charge.account].add(at_ns, charge.cost);
            }
        }
    }

    /// `remaining` never exceeds what is free by the true instants.
    fn check_no_excess(
        &self,
        charges: &[model::Charge],
        answer: &Answer,
        now_ns: u64,
    ) -> TestCaseResult {
        let mut standings = answer.standings.iter();
        for charge in charges {
            for limit in &charge.limits {
                let standing = standings.next().expect("a standing for each limit");
                let admitted = &self.accounts[charge.account];
                let within = admitted.since(now_ns.checked_sub(limit.window_ns()));
                let free = u64::from(limit.units).saturating_sub(within);
                prop_assert!(u64::from(standing.remaining) <= free, "{limit:?}: {standing:?}");
            }
        }
        Ok(())
    }

    /// Everything that was admitted longer ago than a window and a tick is free.
    fn check_prompt(
        &self,
        charges: &[model::Charge],
        answer: &Answer,
        now_ns: u64,
    ) -> TestCaseResult {
        let mut standings = answer.standings.iter();
        for charge in charges {
            for limit in &charge.limits {
                let standing = standings.next().expect("a standing for each limit");
                let admitted = &self.accounts[charge.account];
                let late_ns = limit.window_ns() + limit.tick_ns();
                let held = admitted.since(now_ns.checked_sub(late_ns));
                let free = u64::from(limit.units).saturating_sub(held);
                prop_assert!(free <= u64::from(standing.remaining), "{limit:?}: {standing:?}");
            }
        }
        Ok(())
    }

    /// No interval of a window's length has more than the most units that were ever in force.
    fn check_every_interval(&self, story: &Story) -> TestCaseResult {
        for (account, admitted) in story.accounts.iter().zip(&self.accounts) {
            for (window_ms, units) in &account.windows {
                let units = u64::from(*units.iter().max().expect("units"));
                let most = admitted.most_within(window_ms * MILLI_NS);
                prop_assert!(most <= units, "{most} of {units} in {window_ms} ms");
            }
        }
        Ok(())
    }
}

/// Every answer of the store is the model's.
fn agrees_with_the_model(story: &Story) -> TestCaseResult {
    let subject = Subject::new(story);
    let mut model = Model::default();
    let mut past = vec![story.start_ns];
    let mut now_ns = story.start_ns;
    for step in &story.steps {
        let charges = story.charges(&step.request);
        let leaving_ns = model.leaving_ns(&charges[0], now_ns);
        now_ns = step.advance.after_ns(now_ns, &charges[0], &leaving_ns);
        subject.set_ns(now_ns);
        match step.call {
            Call::Spend => {
                past.push(now_ns);
                prop_assert_eq!(subject.spend(&charges), model.spend(&charges, now_ns));
            }
            Call::Peek => {}
            Call::RefundNewest => {
                subject.refund(&charges, Spent::Newest);
                model.refund_newest(&charges, now_ns);
            }
            Call::RefundAt(index) => {
                let at_ns = *index.get(&past);
                if !is_being_rounded(&charges, at_ns, now_ns) {
                    subject.refund(&charges, Spent::At(Timestamp::from_nanos(at_ns)));
                    model.refund_at(&charges, at_ns, now_ns);
                }
            }
            Call::Reset => {
                subject.reset(&charges);
                model.reset(&charges);
            }
            Call::Record(times) => {
                let recorded = |charge: &model::Charge| model::Charge {
                    cost: charge.cost.saturating_mul(times),
                    kind: Kind::Record,
                    ..charge.clone()
                };
                let recorded: Vec<_> = charges.iter().map(recorded).collect();
                prop_assert_eq!(subject.spend(&recorded), model.spend(&recorded, now_ns));
            }
        }
        prop_assert_eq!(subject.peek(&charges), model.look(&charges, now_ns));
    }
    Ok(())
}

/// What happens to an account whose costs are known afterwards.
#[derive(Debug, Clone, Copy)]
enum Settling {
    /// A request that holds this percentage of the units, at least one.
    Hold(u32),
    /// An earlier one that has turned out to cost this percentage of its hold.
    Settle(prop::sample::Index, u32),
    /// A settlement that was made, once more.
    Again(prop::sample::Index),
}

/// What is admitted never exceeds the units in any window, and as long as nothing was used beyond them,
/// an account stands where the model says. What a record has pushed out may be refunded from other units
/// of its tick or not at all, so after that it may stand otherwise, by what was understated at most.
fn settle_as_the_model(limit: Limit, steps: &[(Advance, Settling)]) -> TestCaseResult {
    let subject = Subject::on(ManualClock::new(Timestamp::from_nanos(START_NS)), 1);
    let of = |cost, kind| model::Charge { account: 0, limits: vec![limit], cost, kind };
    let (mut model, mut now_ns) = (Model::default(), START_NS);
    let (mut holds, mut settled) = (Vec::<(u64, u32)>::new(), Vec::new());
    let (mut names, mut understated) = (0, 0);
    let mut admitted = Admitted::default();
    let settle = |(at_ns, held): (u64, u32), units: u32, name: u32| {
        let id = name.to_string();
        let once = Some(Once { id: &id, within: Duration::from_secs(1_000_000 * 86_400) });
        let settlement = Settlement { at: Timestamp::from_nanos(at_ns), units, once };
        subject.with(&[of(held, Kind::Plain)], |c| subject.store.settle_now(c, settlement))
    };
    for (advance, step) in steps {
        let one = [of(1, Kind::Plain)];
        now_ns = advance.after_ns(now_ns, &one[0], &model.leaving_ns(&one[0], now_ns));
        subject.set_ns(now_ns);
        match *step {
            Settling::Hold(percent) => {
                let held = (limit.units * percent).div_ceil(100).max(1);
                let hold = [of(held, Kind::Plain)];
                let answer = subject.spend(&hold);
                prop_assert!(understated > 0 || model.look(&hold, now_ns).spent == answer.spent);
                if answer.spent {
                    model.spend(&hold, now_ns);
                    admitted.add(now_ns, held);
                    holds.push((now_ns, held));
                }
            }
            Settling::Settle(index, percent) if !holds.is_empty() => {
                let hold = holds.swap_remove(index.index(holds.len()));
                let (at_ns, held) = hold;
                let units = (held * percent).div_ceil(100);
                if is_being_rounded(&one, at_ns, now_ns) {
                    continue;
                }
                names += 1;
                prop_assert_eq!(settle(hold, units, names).expect("room"), Settled::Now);
                settled.push((hold, units, names));
                if units < held {
                    model.refund_at(&[of(held - units, Kind::Plain)], at_ns, now_ns);
                    admitted.take_back(at_ns, held);
                    admitted.add_at(at_ns, units);
                } else if units > held {
                    let beyond = [of(units - held, Kind::Record)];
                    let left = model.look(&beyond, now_ns).standings[0].remaining;
                    understated += (units - held).saturating_sub(left);
                    model.spend(&beyond, now_ns);
                }
            }
            Settling::Again(index) if !settled.is_empty() => {
                let (hold, units, name) = *index.get(&settled);
                prop_assert_eq!(settle(hold, units, name).expect("room"), Settled::Before);
            }
            Settling::Settle(..) | Settling::Again(_) => {}
        }
        let (found, expected) = (subject.peek(&one), model.look(&one, now_ns));
        let most = expected.standings[0].remaining + understated;
        prop_assert!(found.standings[0].remaining <= most);
        prop_assert!(understated > 0 || found == expected, "{:?} {:?}", found, expected);
    }
    prop_assert!(admitted.most_within(limit.window_ns()) <= u64::from(limit.units));
    Ok(())
}

/// Whether what was spent a window ago is only held because its stamp is later: a refund may take
/// it for gone or not.
fn is_being_rounded(charges: &[model::Charge], at_ns: u64, now_ns: u64) -> bool {
    charges.iter().flat_map(|charge| &charge.limits).any(|limit| {
        let held_ns = at_ns + limit.window_ns()..limit.stamp_ns(at_ns) + limit.window_ns();
        held_ns.contains(&now_ns)
    })
}

/// Plays a story of spends alone and shows each to `seen`: the charges, the answer, the instant.
fn play(
    story: &Story,
    subject: &Subject,
    mut seen: impl FnMut(&Step, &[model::Charge], &Answer, u64) -> TestCaseResult,
) -> TestCaseResult {
    let mut model = Model::default();
    for step in &story.steps {
        let charges = story.charges(&step.request);
        let now_ns = subject.clock.now().as_nanos();
        let leaving_ns = model.leaving_ns(&charges[0], now_ns);
        let now_ns = step.advance.after_ns(now_ns, &charges[0], &leaving_ns);
        subject.set_ns(now_ns);
        let answer = subject.spend(&charges);
        // The model is only asked for the instants that are worth going to.
        model.spend(&charges, now_ns);
        seen(step, &charges, &answer, now_ns)?;
    }
    Ok(())
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        max_shrink_time: 10_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    }
}

fn window_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        4 => 1..=20_u64,
        3 => 21..=5_000_u64,
        2 => prop::sample::select(vec![1_000, 4_095, 4_096, 4_097, 60_000, 3_600_000, DAY_MS]),
        2 => 5_000..=7 * DAY_MS,
        1 => 7 * DAY_MS..=366 * DAY_MS,
    ]
}

fn units() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => 1..=20_u32,
        1 => 21..=4_096_u32,
        1 => prop::sample::select(vec![4_095, 4_096, 4_097, 6_000, 1_000_000, u32::MAX]),
        1 => 4_097..=6_000_u32,
    ]
}

/// Units with one tick, whichever of them is in force.
fn changing_units() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        3 => prop::collection::vec(1..=12_u32, 2..6),
        1 => prop::collection::vec(4_000..=4_096_u32, 2..6),
        1 => prop::collection::vec(4_097..=20_000_u32, 2..6),
    ]
}

/// Units on both sides of where ticks grow.
fn crossing_units() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(
        prop_oneof![1..=12_u32, 4_000..=4_200_u32, 4_097..=20_000_u32, Just(1_000_000)],
        2..6,
    )
}

fn account<U: Strategy<Value = Vec<u32>>>(
    kind: impl Strategy<Value = Kind>,
    units: impl Fn() -> U,
) -> impl Strategy<Value = AccountSpec> {
    account_of(kind, window_ms(), units)
}

fn account_of<U: Strategy<Value = Vec<u32>>>(
    kind: impl Strategy<Value = Kind>,
    window_ms: impl Strategy<Value = u64>,
    units: impl Fn() -> U,
) -> impl Strategy<Value = AccountSpec> {
    (kind, prop::collection::btree_map(window_ms, units(), 1..=3))
        .prop_map(|(kind, windows)| AccountSpec { kind, windows: windows.into_iter().collect() })
}

fn advance() -> impl Strategy<Value = Advance> {
    let near =
        || prop_oneof![Just(0), Just(-1), Just(1), Just(-1_000_000), -2_000_000..2_000_000_i64];
    prop_oneof![
        4 => Just(Advance::None),
        3 => (1..3 * MILLI_NS).prop_map(Advance::Nanos),
        2 => (0..6_u64, 0..2 * MILLI_NS).prop_map(|(part, ns)| Advance::Window(part, ns)),
        1 => (10..40_u64, 0..2 * MILLI_NS).prop_map(|(part, ns)| Advance::Window(part, ns)),
        2 => (0..3_u64, near()).prop_map(|(ticks, ns)| Advance::Tick(ticks, ns)),
        4 => (any::<prop::sample::Index>(), near()).prop_map(|(i, ns)| Advance::Leaving(i, ns)),
    ]
}

fn request() -> impl Strategy<Value = Request> {
    let cost = prop_oneof![
        5 => Just(Cost::One),
        3 => (1..=60_u32).prop_map(Cost::Percent),
        1 => Just(Cost::Percent(100)),
    ];
    (any::<u8>(), prop::array::uniform4(cost), any::<prop::sample::Index>())
        .prop_map(|(accounts, costs, units)| Request { accounts, costs, units })
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        20 => Just(Call::Spend),
        2 => Just(Call::Peek),
        2 => Just(Call::RefundNewest),
        2 => any::<prop::sample::Index>().prop_map(Call::RefundAt),
        1 => Just(Call::Reset),
    ]
}

fn story(
    account: impl Strategy<Value = AccountSpec>,
    call: impl Strategy<Value = Call>,
) -> impl Strategy<Value = Story> {
    let step = (advance(), request(), call).prop_map(|(advance, request, call)| Step {
        advance,
        request,
        call,
    });
    let day_ns = DAY_MS * MILLI_NS;
    let start_ns = prop_oneof![
        12 => START_NS..START_NS + 2 * day_ns,
        3 => Just(START_NS),
        1 => 0..100 * MILLI_NS,
    ];
    (start_ns, prop::collection::vec(account, 1..=4), prop::collection::vec(step, 1..300))
        .prop_map(|(start_ns, accounts, steps)| Story { start_ns, accounts, steps })
}

/// Any number of accounts, all plain, with units that never change.
fn plain_story(call: impl Strategy<Value = Call>) -> impl Strategy<Value = Story> {
    story(account(Just(Kind::Plain), || units().prop_map(|units| vec![units])), call)
}

fn spends() -> impl Strategy<Value = Call> {
    Just(Call::Spend)
}

fn one_of(kinds: &[Kind]) -> impl Strategy<Value = Kind> + use<> {
    prop::sample::select(kinds.to_vec())
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn every_answer_matches_the_model(story in plain_story(spends())) {
        agrees_with_the_model(&story)?;
    }

    #[test]
    fn refunds_resets_and_peeks_do_what_the_model_does(story in plain_story(any_call())) {
        agrees_with_the_model(&story)?;
    }

    #[test]
    fn units_may_change_and_history_stays(
        story in story(account(Just(Kind::Plain), changing_units), any_call())
    ) {
        agrees_with_the_model(&story)?;
    }

    #[test]
    fn denied_requests_count_where_they_should(
        story in story(
            account(one_of(&[Kind::Plain, Kind::CountDenied, Kind::CountDenied]), || {
                units().prop_map(|units| vec![units])
            }),
            spends(),
        )
    ) {
        agrees_with_the_model(&story)?;
    }

    #[test]
    fn shadow_charges_count_where_they_fit_and_deny_nothing(
        story in story(
            account(one_of(&[Kind::Plain, Kind::Shadow]), || units().prop_map(|units| vec![units])),
            any_call(),
        )
    ) {
        agrees_with_the_model(&story)?;
    }

    #[test]
    fn records_are_written_down_and_only_the_newest_matter(
        story in story(
            account(one_of(&[Kind::Plain, Kind::Shadow]), || units().prop_map(|units| vec![units])),
            prop_oneof![
                12 => Just(Call::Spend),
                4 => (1..=5_u32).prop_map(Call::Record),
                2 => Just(Call::Peek),
                1 => Just(Call::Reset),
            ],
        )
    ) {
        agrees_with_the_model(&story)?;
    }

    #[test]
    fn holds_that_are_settled_count_as_what_they_cost(
        window_ms in window_ms(),
        units in 2..=40_u32,
        steps in prop::collection::vec(
            (
                advance(),
                prop_oneof![
                    3 => (1..=100_u32).prop_map(Settling::Hold),
                    2 => (any::<prop::sample::Index>(), 0..=300_u32).prop_map(|(i, p)| Settling::Settle(i, p)),
                    1 => any::<prop::sample::Index>().prop_map(Settling::Again),
                ],
            ),
            1..200,
        ),
    ) {
        settle_as_the_model(Limit { units, window_ms }, &steps)?;
    }

    #[test]
    fn no_interval_of_a_window_has_more_than_the_units(story in plain_story(spends())) {
        let subject = Subject::new(&story);
        let mut witness = Witness::new(&story);
        play(&story, &subject, |_, charges, answer, now_ns| {
            witness.note(charges, answer, now_ns);
            witness.check_no_excess(charges, answer, now_ns)?;
            witness.check_prompt(charges, answer, now_ns)
        })?;
        witness.check_every_interval(&story)?;
    }

    #[test]
    fn whatever_units_are_in_force_bound_the_window_that_ends_now(
        story in story(
            account(one_of(&[Kind::Plain, Kind::Shadow, Kind::CountDenied]), crossing_units),
            spends(),
        )
    ) {
        let subject = Subject::new(&story);
        let mut witness = Witness::new(&story);
        play(&story, &subject, |_, charges, answer, now_ns| {
            let before = witness.accounts.clone();
            witness.note(charges, answer, now_ns);
            for charge in charges {
                let admitted = &witness.accounts[charge.account];
                if admitted.since(None) == before[charge.account].since(None) {
                    continue;
                }
                for limit in &charge.limits {
                    let within = admitted.since(now_ns.checked_sub(limit.window_ns()));
                    prop_assert!(within <= u64::from(limit.units), "{within} of {limit:?}");
                }
            }
            Ok(())
        })?;
        witness.check_every_interval(&story)?;
    }

    #[test]
    fn refunds_while_units_change_admit_nothing_twice(
        story in story(
            account_of(Just(Kind::Plain), 4_097..12_000_u64, || {
                (4_000..=4_096_u32, 4_097..5_000_u32).prop_map(|(fine, coarse)| vec![fine, coarse])
            }),
            prop_oneof![
                3 => Just(Call::Spend),
                1 => any::<prop::sample::Index>().prop_map(Call::RefundAt),
            ],
        )
    ) {
        let subject = Subject::new(&story);
        let mut witness = Witness::new(&story);
        let mut receipts: Vec<(u64, Vec<model::Charge>)> = Vec::new();
        let (mut now_ns, mut leaving_ns) = (story.start_ns, Vec::new());
        for step in &story.steps {
            let charges = story.charges(&step.request);
            now_ns = step.advance.after_ns(now_ns, &charges[0], &leaving_ns);
            subject.set_ns(now_ns);
            if let (Call::RefundAt(index), false) = (step.call, receipts.is_empty()) {
                let (at_ns, spent) = receipts.remove(index.index(receipts.len()));
                let now: Vec<_> = spent.iter().map(|c| story.reprice(c, &step.request)).collect();
                subject.refund(&now, Spent::At(Timestamp::from_nanos(at_ns)));
                for charge in &spent {
                    witness.accounts[charge.account].take_back(at_ns, charge.cost);
                }
            } else {
                let answer = subject.spend(&charges);
                witness.note(&charges, &answer, now_ns);
                if answer.spent {
                    receipts.push((now_ns, charges.clone()));
                }
            }
            let peek = subject.peek(&charges);
            witness.check_no_excess(&charges, &peek, now_ns)?;
            leaving_ns = peek.leaving_ns();
        }
    }

    #[test]
    fn a_denied_request_is_denied_until_retry_after_and_allowed_then(
        story in plain_story(spends()),
        part in 0.0..1.0_f64,
    ) {
        let subject = Subject::new(&story);
        play(&story, &subject, |_, charges, answer, now_ns| {
            if answer.spent {
                return Ok(());
            }
            let wait_ns = retry_after_ns(charges, answer);
            prop_assert!(wait_ns > 0);
            let somewhere_ns = (wait_ns as f64 * part) as u64;
            let early = [somewhere_ns, wait_ns.saturating_sub(MILLI_NS), wait_ns - 1];
            let mut early: Vec<u64> = early.into_iter().filter(|ns| *ns < wait_ns).collect();
            early.sort_unstable();
            for early_ns in early {
                subject.set_ns(now_ns + early_ns);
                let peek = subject.peek(charges);
                prop_assert!(!peek.spent, "allowed {} ns early", wait_ns - early_ns);
                prop_assert_eq!(retry_after_ns(charges, &peek), wait_ns - early_ns);
            }
            subject.set_ns(now_ns + wait_ns);
            prop_assert!(subject.peek(charges).spent, "denied after {} ns", wait_ns);
            Ok(())
        })?;
    }

    #[test]
    fn a_denied_request_changes_nothing(story in plain_story(spends())) {
        let subject = Subject::new(&story);
        let spared = Subject::on(subject.clock.clone(), story.accounts.len());
        play(&story, &subject, |_, charges, answer, _| {
            if answer.spent {
                prop_assert_eq!(&spared.spend(charges), answer);
            } else {
                prop_assert_eq!(&spared.peek(charges), answer);
            }
            for charge in charges.chunks(1) {
                prop_assert_eq!(subject.peek(charge), spared.peek(charge));
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_peek_changes_nothing(story in plain_story(spends())) {
        let peeked = Subject::new(&story);
        let subject = Subject::on(peeked.clock.clone(), story.accounts.len());
        let everybody = |step: &Step| {
            story.charges(&Request { accounts: u8::MAX, ..step.request.clone() })
        };
        play(&story, &subject, |step, charges, answer, _| {
            let all = everybody(step);
            let before = peeked.peek(&all);
            prop_assert_eq!(&peeked.peek(&all), &before);
            prop_assert_eq!(&peeked.spend(charges), answer);
            let after = peeked.peek(&all);
            prop_assert_eq!(&after, &subject.peek(&all));
            Ok(())
        })?;
    }

    #[test]
    fn a_shadow_charge_changes_nothing_for_others(
        story in story(
            account(one_of(&[Kind::Plain, Kind::Shadow]), || units().prop_map(|units| vec![units])),
            spends(),
        )
    ) {
        let subject = Subject::new(&story);
        let without = Subject::on(subject.clock.clone(), story.accounts.len());
        play(&story, &subject, |_, charges, answer, _| {
            let mut plain = charges.to_vec();
            plain.retain(|charge| charge.kind != Kind::Shadow);
            if plain.is_empty() {
                prop_assert!(answer.spent, "a shadow charge denied");
            } else {
                prop_assert_eq!(without.spend(&plain).spent, answer.spent);
                prop_assert_eq!(subject.peek(&plain), without.peek(&plain));
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_window_that_stays_keeps_its_history_when_others_come_and_go(
        kept in (1..=20_u32, 1..=5_000_u64),
        others in prop::collection::vec(prop::collection::btree_set(5_001..5_009_u64, 0..3), 1..40),
        gaps in prop::collection::vec(0..5 * MILLI_NS, 40),
    ) {
        let kept = Limit { units: kept.0, window_ms: kept.1 };
        let subject = Subject::on(ManualClock::default(), 1);
        let mut history = History::default();
        for (others, gap_ns) in others.iter().zip(gaps) {
            subject.clock.advance(Duration::from_nanos(gap_ns * kept.window_ms / 40));
            let now_ns = subject.clock.now().as_nanos();
            let wide = others.iter().map(|window_ms| Limit { units: 4_000, window_ms: *window_ms });
            let mut limits: Vec<Limit> = wide.collect();
            limits.insert(limits.len() / 2, kept);
            let charge = model::Charge { account: 0, limits, cost: 1, kind: Kind::Plain };
            let fits = history.fits(kept, 1, now_ns);
            if fits {
                history.record(kept, 1, now_ns);
            }
            let answer = subject.spend(std::slice::from_ref(&charge));
            prop_assert_eq!(answer.spent, fits);
            let standing = answer.standings[others.len() / 2];
            prop_assert_eq!(standing.remaining, history.remaining(kept, now_ns));
        }
    }
}

/// What a clock that may step back does between two calls.
#[derive(Debug, Clone, Copy)]
enum Shift {
    Forward(Advance),
    /// So many 16ths of a window, and some nanoseconds.
    Back(u64, u64),
}

fn shift() -> impl Strategy<Value = Shift> {
    prop_oneof![
        6 => advance().prop_map(Shift::Forward),
        1 => (0..4_u64, 0..3 * MILLI_NS).prop_map(|(part, ns)| Shift::Back(part, ns)),
        1 => (0..80_u64, 0..3 * MILLI_NS).prop_map(|(part, ns)| Shift::Back(part, ns)),
    ]
}

/// Plays a story on a clock that steps back, and shows each spend with the time that has gone by
/// going forward.
fn play_stepping(
    story: &Story,
    shifts: &[Shift],
    subject: &Subject,
    mut seen: impl FnMut(&[model::Charge], &Answer, u64) -> TestCaseResult,
) -> TestCaseResult {
    let mut elapsed_ns = 0;
    let mut leaving_ns = Vec::new();
    for (step, shift) in story.steps.iter().zip(shifts) {
        let charges = story.charges(&step.request);
        let now_ns = subject.clock.now().as_nanos();
        let window_ns = charges[0].limits[0].window_ns();
        let to_ns = match *shift {
            Shift::Forward(advance) => advance.after_ns(now_ns, &charges[0], &leaving_ns),
            Shift::Back(part, ns) => now_ns.saturating_sub(window_ns / 16 * part + ns),
        };
        elapsed_ns += to_ns.saturating_sub(now_ns);
        subject.set_ns(to_ns);
        let answer = subject.spend(&charges);
        leaving_ns = answer.leaving_ns();
        seen(&charges, &answer, elapsed_ns)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_clock_that_steps_back_admits_nothing_twice(
        story in story(
            account(one_of(&[Kind::Plain, Kind::CountDenied]), || {
                units().prop_map(|units| vec![units])
            }),
            spends(),
        ),
        shifts in prop::collection::vec(shift(), 300),
    ) {
        let subject = Subject::new(&story);
        let mut witness = Witness::new(&story);
        play_stepping(&story, &shifts, &subject, |charges, answer, elapsed_ns| {
            witness.note(charges, answer, elapsed_ns);
            Ok(())
        })?;
        witness.check_every_interval(&story)?;
    }

    #[test]
    fn a_clock_that_steps_back_admits_nothing_twice_when_units_change(
        story in story(
            account(one_of(&[Kind::Plain, Kind::CountDenied]), crossing_units),
            spends(),
        ),
        shifts in prop::collection::vec(shift(), 300),
    ) {
        let subject = Subject::new(&story);
        let mut witness = Witness::new(&story);
        play_stepping(&story, &shifts, &subject, |charges, answer, elapsed_ns| {
            witness.note(charges, answer, elapsed_ns);
            Ok(())
        })?;
        witness.check_every_interval(&story)?;
    }

    #[test]
    fn a_clock_that_steps_back_denies_for_no_longer_than_a_window(
        story in plain_story(spends()),
        shifts in prop::collection::vec(shift(), 300),
    ) {
        let subject = Subject::new(&story);
        play_stepping(&story, &shifts, &subject, |_, _, _| Ok(()))?;
        let all = Request {
            accounts: u8::MAX,
            costs: [Cost::Percent(100); 4],
            units: story.steps[0].request.units,
        };
        let charges = story.charges(&all);
        // Whatever it says, the store has seen where the clock is.
        let answer = subject.spend(&charges);
        let wait_ns = retry_after_ns(&charges, &answer);
        let limits = || charges.iter().flat_map(|charge| &charge.limits);
        let longest_ns = limits().map(|limit| limit.window_ns() + limit.tick_ns()).max();
        let longest_ns = longest_ns.expect("a window");
        prop_assert!(wait_ns <= longest_ns, "must wait for {} ns", wait_ns);
        subject.set_ns(answer.at_ns + longest_ns);
        prop_assert!(subject.spend(&charges).spent, "still out");
    }

    #[test]
    fn a_denial_is_truthful_after_a_step_back_too(
        story in plain_story(spends()),
        shifts in prop::collection::vec(shift(), 300),
    ) {
        let subject = Subject::new(&story);
        play_stepping(&story, &shifts, &subject, |charges, answer, _| {
            if answer.spent {
                return Ok(());
            }
            let now_ns = answer.at_ns;
            let wait_ns = retry_after_ns(charges, answer);
            subject.set_ns(now_ns + wait_ns - 1);
            prop_assert!(!subject.peek(charges).spent, "allowed before {} ns", wait_ns);
            subject.set_ns(now_ns + wait_ns);
            prop_assert!(subject.peek(charges).spent, "denied after {} ns", wait_ns);
            Ok(())
        })?;
    }

    #[test]
    fn a_peek_after_a_step_back_is_truthful_too(
        story in plain_story(spends()),
        shifts in prop::collection::vec(shift(), 300),
        back in (0..80_u64, 0..3 * MILLI_NS),
    ) {
        let subject = Subject::new(&story);
        play_stepping(&story, &shifts, &subject, |charges, _, _| {
            let now_ns = subject.clock.now().as_nanos();
            let back_ns = charges[0].limits[0].window_ns() / 16 * back.0 + back.1;
            subject.set_ns(now_ns.saturating_sub(back_ns));
            let peek = subject.peek(charges);
            if peek.spent {
                return Ok(());
            }
            let now_ns = peek.at_ns;
            let wait_ns = retry_after_ns(charges, &peek);
            subject.set_ns(now_ns + wait_ns - 1);
            prop_assert!(!subject.peek(charges).spent, "allowed before {} ns", wait_ns);
            subject.set_ns(now_ns + wait_ns);
            prop_assert!(subject.peek(charges).spent, "denied after {} ns", wait_ns);
            Ok(())
        })?;
    }
}

/// A burst of spends on a ledger: how many, how far apart in 256ths of a tick, of what cost.
#[derive(Debug, Clone)]
struct Burst {
    wait: (u64, u64),
    spends: usize,
    gap: u64,
    cost: u32,
    units: prop::sample::Index,
}

fn bursts() -> impl Strategy<Value = Vec<Burst>> {
    let wait = prop_oneof![
        2 => Just((0, 0)),
        2 => (0..8_u64, 0..3 * MILLI_NS),
        1 => (15..18_u64, 0..3 * MILLI_NS),
    ];
    let spends = prop_oneof![3 => 1..40_usize, 2 => 40..1_500_usize, 1 => 4_090..4_200_usize];
    let gap = prop_oneof![1 => Just(0), 1 => 1..256_u64, 3 => 256..300_u64, 1 => 300..2_000_u64];
    let cost = prop_oneof![4 => Just(1_u32), 1 => 1..100_u32];
    let burst = (wait, spends, gap, cost, any::<prop::sample::Index>())
        .prop_map(|(wait, spends, gap, cost, units)| Burst { wait, spends, gap, cost, units });
    prop::collection::vec(burst, 1..10)
}

/// One account's ledger under units that may change, beside the true instants.
struct Book {
    ledger: Ledger,
    window_ms: u64,
    now_ns: u64,
    admitted: Admitted,
    /// When each units were last in force, the latest last.
    in_force: Vec<(u64, u32)>,
}

impl Book {
    fn new(window_ms: u64, units: u32) -> Self {
        Self {
            ledger: Ledger::new(quota(Limit { units, window_ms })),
            window_ms,
            now_ns: START_NS,
            admitted: Admitted::default(),
            in_force: Vec::new(),
        }
    }

    fn run(&mut self, burst: &Burst, units: u32, kind: Kind) -> TestCaseResult {
        let limit = Limit { units, window_ms: self.window_ms };
        let cost = burst.cost.min(units);
        self.now_ns += limit.window_ns() / 16 * burst.wait.0 + burst.wait.1;
        for _ in 0..burst.spends {
            self.now_ns += limit.tick_ns() / 256 * burst.gap;
            self.call(limit, cost, kind)?;
        }
        self.check_room(limit)
    }

    fn call(&mut self, limit: Limit, cost: u32, kind: Kind) -> TestCaseResult {
        let (quota, now) = (quota(limit), Timestamp::from_nanos(self.now_ns));
        self.in_force.retain(|(_, units)| *units != limit.units);
        self.in_force.push((self.now_ns, limit.units));
        self.ledger.expire(now);
        if self.ledger.admits(quota, cost) {
            self.ledger.spend(quota, cost, now);
            self.admitted.add(self.now_ns, cost);
        } else if kind == Kind::CountDenied {
            self.ledger.record(quota, cost, now);
        }
        let (entries, bound) = (self.ledger.entries(), self.most_units(limit, kind).min(4_097));
        prop_assert!(entries <= bound as usize, "{entries} entries, at most {bound} expected");
        Ok(())
    }

    /// The most units in force within the window, and the tick that a unit may be held longer.
    /// Who hammers may keep as many as there ever were: the newest for the oldest, one by one.
    fn most_units(&self, limit: Limit, kind: Kind) -> u32 {
        let from_ns = match kind {
            Kind::CountDenied => 0,
            _ => self.now_ns - limit.window_ns() - self.coarsest_tick_ns(),
        };
        let lately = self.in_force.iter().rev().take_while(|(at_ns, _)| *at_ns > from_ns);
        lately.map(|(_, units)| *units).max().expect("this call's")
    }

    fn coarsest_tick_ns(&self) -> u64 {
        Limit { units: u32::MAX, window_ms: self.window_ms }.tick_ns()
    }

    /// Never more in use than there is, and nothing held for longer than a window and a tick.
    fn check_room(&self, limit: Limit) -> TestCaseResult {
        let remaining = u64::from(self.ledger.remaining(quota(limit)));
        let within = self.admitted.since(Some(self.now_ns - limit.window_ns()));
        prop_assert!(remaining <= u64::from(limit.units).saturating_sub(within));
        Ok(())
    }

    fn check_promptness(&self, limit: Limit) -> TestCaseResult {
        let remaining = u64::from(self.ledger.remaining(quota(limit)));
        let held_ns = limit.window_ns() + self.coarsest_tick_ns();
        let held = self.admitted.since(Some(self.now_ns - held_ns));
        prop_assert!(remaining >= u64::from(limit.units).saturating_sub(held));
        Ok(())
    }
}

fn ledger_window_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 100..20_000_u64,
        2 => prop::sample::select(vec![1, 4_096, 60_000, DAY_MS, 60 * DAY_MS, 366 * DAY_MS]),
    ]
}

fn ledger_units() -> impl Strategy<Value = u32> {
    prop_oneof![
        3 => 1..50_u32,
        3 => 4_000..=4_096_u32,
        3 => 4_097..=6_000_u32,
        1 => Just(1_000_000),
    ]
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn a_ledger_has_no_more_entries_than_units_or_ticks(
        window_ms in ledger_window_ms(),
        units in ledger_units(),
        kind in one_of(&[Kind::Plain, Kind::CountDenied]),
        bursts in bursts(),
    ) {
        let mut book = Book::new(window_ms, units);
        for burst in &bursts {
            book.run(burst, units, kind)?;
            prop_assert!(book.ledger.entries() <= units.min(4_097) as usize);
            if kind == Kind::Plain {
                book.check_promptness(Limit { units, window_ms })?;
            }
        }
    }

    #[test]
    fn a_ledger_stays_bounded_and_prompt_when_units_change(
        window_ms in ledger_window_ms(),
        units in prop::collection::vec(ledger_units(), 2..5),
        bursts in bursts(),
    ) {
        let mut book = Book::new(window_ms, units[0]);
        for burst in &bursts {
            let units = *burst.units.get(&units);
            book.run(burst, units, Kind::Plain)?;
            book.check_promptness(Limit { units, window_ms })?;
        }
    }

    #[test]
    fn a_ledger_that_counts_denied_requests_stays_bounded_when_units_change(
        window_ms in ledger_window_ms(),
        units in prop::collection::vec(ledger_units(), 2..5),
        bursts in bursts(),
    ) {
        let mut book = Book::new(window_ms, units[0]);
        for burst in &bursts {
            book.run(burst, *burst.units.get(&units), Kind::CountDenied)?;
        }
    }

    #[test]
    fn a_client_that_keeps_hammering_is_admitted_a_window_after_it_stops(
        units in ledger_units(),
        window_ms in ledger_window_ms(),
        gap_ns in prop::collection::vec(0..=u64::from(u16::MAX), 20..400),
        phase_ns in 0..DAY_MS * MILLI_NS,
    ) {
        let limit = Limit { units, window_ms };
        let subject = Subject::on(ManualClock::new(Timestamp::from_nanos(START_NS + phase_ns)), 1);
        let attempt =
            [model::Charge { account: 0, limits: vec![limit], cost: units, kind: Kind::CountDenied }];
        prop_assert!(subject.spend(&attempt).spent);
        for gap_ns in gap_ns {
            // Always within the window, whatever the gap.
            let gap_ns = ((u128::from(limit.window_ns() - 1) * u128::from(gap_ns)) >> 16) as u64;
            subject.clock.advance(Duration::from_nanos(gap_ns));
            prop_assert!(!subject.spend(&attempt).spent, "let in while hammering");
        }
        let stopped_ns = subject.clock.now().as_nanos();
        subject.set_ns(stopped_ns + limit.window_ns() - 1);
        prop_assert!(!subject.peek(&attempt).spent, "let in within the window");
        subject.set_ns(stopped_ns + limit.window_ns() + limit.tick_ns());
        prop_assert!(subject.spend(&attempt).spent, "still out");
    }
}

/// A charge of one account for examples, with a window of a minute.
fn minutely(units: u32, cost: u32, kind: Kind) -> [model::Charge; 1] {
    let limits = vec![Limit { units, window_ms: 60_000 }];
    [model::Charge { account: 0, limits, cost, kind }]
}

#[test]
fn raising_units_gives_room_at_once_and_lowering_them_denies_until_drained() {
    let subject = Subject::on(ManualClock::default(), 1);
    let admitted = |units: u32| {
        let one = minutely(units, 1, Kind::Plain);
        (0..100).filter(|_| subject.spend(&one).spent).count()
    };
    let twenty_seconds = || subject.clock.advance(Duration::from_secs(20));
    assert_eq!(admitted(10), 10);
    twenty_seconds();
    assert_eq!(admitted(15), 5, "raised: room at once");
    twenty_seconds();
    assert_eq!(admitted(3), 0, "lowered: 15 are still in the window");
    assert_eq!(admitted(16), 1, "raised again: the 15 are not forgotten");
    twenty_seconds();
    assert_eq!(admitted(3), 0, "the first ten have left, six have not");
    twenty_seconds();
    assert_eq!(admitted(3), 2, "the five have left, one has not");
}

#[test]
fn counting_denied_requests_while_units_are_lowered_forgets_nothing_that_was_admitted() {
    let subject = Subject::on(ManualClock::default(), 1);
    let spend = |units: u32| subject.spend(&minutely(units, 1, Kind::CountDenied)).spent;
    assert_eq!((0..10).filter(|_| spend(10)).count(), 10);
    assert!(!spend(2), "lowered: ten are in the window");
    assert!(!spend(10), "raised again: ten of ten are still in the window");
}

#[test]
fn a_peek_after_a_refund_or_a_reset_is_not_answered_from_an_earlier_one() {
    type Undo = fn(&Subject);
    let undos: [(&str, Undo); 2] = [
        ("refund", |subject| subject.refund(&minutely(3, 3, Kind::Plain), Spent::Newest)),
        ("reset", |subject| subject.reset(&minutely(3, 1, Kind::Plain))),
    ];
    for (name, undo) in undos {
        let subject = Subject::on(ManualClock::default(), 1);
        assert!(subject.spend(&minutely(3, 3, Kind::Plain)).spent);
        for cost in [1, 2, 3] {
            assert!(!subject.peek(&minutely(3, cost, Kind::Plain)).spent);
        }
        undo(&subject);
        for cost in [1, 2, 3] {
            assert!(subject.peek(&minutely(3, cost, Kind::Plain)).spent, "{cost} after a {name}");
        }
    }
}

#[test]
fn a_peek_after_a_spend_is_not_answered_from_an_earlier_one() {
    let subject = Subject::on(ManualClock::default(), 1);
    let peek = |cost: u32| {
        let standing = subject.peek(&minutely(6, cost, Kind::Plain)).standings[0];
        (standing.remaining, standing.retry_after_ns / MILLI_NS)
    };
    assert!(subject.spend(&minutely(6, 3, Kind::Plain)).spent);
    subject.clock.advance(Duration::from_millis(100));
    assert_eq!((peek(6), peek(5)), ((3, 59_900), (3, 59_900)));
    assert!(subject.spend(&minutely(6, 2, Kind::Plain)).spent);
    assert_eq!((peek(6), peek(5)), ((1, 60_000), (1, 60_000)));
}

/// A tick is a millisecond for 4,096 units in a minute and 15 ms for one more.
#[test]
fn a_refund_after_units_were_raised_takes_back_what_was_spent_then_and_nothing_newer() {
    let subject = Subject::on(ManualClock::default(), 1);
    let at = |ms: u64| Timestamp::from_nanos(START_NS) + Duration::from_millis(ms);
    let spend = |ms: u64, units: u32, cost: u32| {
        subject.clock.set(at(ms));
        subject.spend(&minutely(units, cost, Kind::Plain)).spent
    };
    assert!(spend(3, 4_096, 1));
    assert!(spend(15, 4_096, 4_095));
    subject.refund(&minutely(4_097, 1, Kind::Plain), Spent::At(at(3)));
    assert!(!spend(60_003, 4_097, 3), "4,095 are in the window until 60,015 ms");
    assert!(spend(60_003, 4_097, 2));
}

#[test]
fn a_refund_of_what_has_left_takes_back_nothing_newer() {
    let subject = Subject::on(ManualClock::default(), 1);
    let at = |ms: u64| Timestamp::from_nanos(START_NS) + Duration::from_millis(ms);
    let spend = |ms: u64, units: u32, cost: u32| {
        subject.clock.set(at(ms));
        subject.spend(&minutely(units, cost, Kind::Plain)).spent
    };
    assert!(spend(3, 4_096, 1));
    assert!(spend(15, 4_096, 4_095));
    assert!(spend(60_003, 4_097, 1), "the unit of 3 ms has left");
    subject.refund(&minutely(4_097, 1, Kind::Plain), Spent::At(at(3)));
    assert!(!spend(60_003, 4_097, 2), "4,095 and one are in the window until 60,015 ms");
    assert!(spend(60_003, 4_097, 1));
}
