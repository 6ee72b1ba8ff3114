//! Both layouts, and the packed one beside another charge, answer alike on any history, and as the
//! store in memory does; and what they answer keeps the promises by the true instants.

#[allow(dead_code, reason = "this test uses a part")]
#[path = "../../slidegate/tests/model/mod.rs"]
mod model;

use std::num::NonZeroU32;
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, TestCaseResult, TestRunner};
use slidegate::limit::{
    AccountReading, Charge, Charges, Quotas, Receipt, Settled, Settlement, Spent,
};
use slidegate::{Identity, ManualClock, MemoryStore, Name, Quota, Store, Timestamp};
use slidegate_redis::{Layout, RedisStore};
use slidegate_testbed::{ManualTime, RedisServer};
use tokio::runtime::Runtime;

use crate::support::Payer;

/// Of each property. A run with many more is for hunting.
const CASES: u32 = 40;

const HOUR_US: u64 = 3_600_000_000;
const DAY_MS: u64 = 86_400_000;

/// Who there is, and everything that happens.
#[derive(Debug, Clone)]
struct Story {
    accounts: Vec<AccountSpec>,
    steps: Vec<Step>,
    /// From this step on the later units are in force.
    change_at: usize,
}

/// An account and its windows. Each window has some units, and later others, which steps choose
/// from.
#[derive(Debug, Clone)]
struct AccountSpec {
    count_denied: bool,
    shadow: bool,
    windows: Vec<(u64, [Vec<u32>; 2])>,
}

#[derive(Debug, Clone)]
struct Step {
    clock: Move,
    accounts: u8,
    costs: [Cost; 3],
    units: prop::sample::Index,
    call: Call,
}

/// How the clock moves before a call.
#[derive(Debug, Clone, Copy)]
enum Move {
    None,
    Micros(u64),
    /// So many 16ths of the first account's longest window, and some microseconds.
    Window(u64, u64),
    /// To where something was said to be free, and some microseconds on or back.
    Leaving(prop::sample::Index, i64),
    Back(u64),
}

#[derive(Debug, Clone, Copy)]
enum Cost {
    One,
    Few(u32),
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
    /// Of an earlier call, spent or not, at so many times its cost.
    Settle(prop::sample::Index, u32),
}

/// What a charge is made of, once a step has chosen.
#[derive(Debug, Clone)]
struct Chosen {
    account: usize,
    quotas: Quotas,
    cost: NonZeroU32,
    count_denied: bool,
    shadow: bool,
}

/// A receipt, to be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    at: Timestamp,
    spent: bool,
    /// Remaining, retry after and reset after.
    standings: Vec<(u32, Duration, Duration)>,
}

impl Answer {
    fn new(receipt: &Receipt, standings: usize) -> Self {
        let standing = |standing: &slidegate::Standing| {
            (standing.remaining(), standing.retry_after(), standing.reset_after())
        };
        Self {
            at: receipt.at,
            spent: receipt.spent,
            standings: receipt.standings.iter().take(standings).map(standing).collect(),
        }
    }

    /// Where something is free, by what it says.
    fn leaving_us(&self) -> Vec<u64> {
        let waits = self.standings.iter().flat_map(|(_, retry, reset)| [*retry, *reset]);
        let micros = |wait: Duration| u64::try_from(wait.as_micros()).expect("a few years");
        let at_us = self.at.as_nanos() / 1000;
        waits.filter(|wait| !wait.is_zero()).map(|wait| at_us + micros(wait)).collect()
    }
}

impl Story {
    fn chosen(&self, number: usize, step: &Step) -> Vec<Chosen> {
        let charged = |i: &usize| step.accounts & (1 << i) != 0;
        let mut accounts: Vec<usize> = (0..self.accounts.len()).filter(charged).collect();
        if accounts.is_empty() {
            accounts.push(usize::from(step.accounts) % self.accounts.len());
        }
        accounts.into_iter().map(|account| self.choose(account, number, step)).collect()
    }

    fn everybody(&self, number: usize, step: &Step) -> Vec<Chosen> {
        let choose = |account| {
            let chosen = self.choose(account, number, step);
            Chosen { cost: NonZeroU32::MIN, ..chosen }
        };
        (0..self.accounts.len()).map(choose).collect()
    }

    fn choose(&self, account: usize, number: usize, step: &Step) -> Chosen {
        let AccountSpec { count_denied, shadow, windows } = &self.accounts[account];
        let later = usize::from(number >= self.change_at);
        let quota = |(window_ms, units): &(u64, [Vec<u32>; 2])| {
            let units = NonZeroU32::new(*step.units.get(&units[later])).expect("units");
            Quota::new(units, Duration::from_millis(*window_ms)).expect("a window")
        };
        let quotas = Quotas::new(windows.iter().map(quota)).expect("windows that differ");
        let fewest = quotas.fewest_units().get();
        let cost = match step.costs[account] {
            Cost::One => 1,
            Cost::Few(units) => units.min(fewest),
            Cost::Percent(percent) => (u64::from(fewest) * u64::from(percent)).div_ceil(100) as u32,
        };
        let cost = NonZeroU32::new(cost).expect("a cost");
        Chosen { account, quotas, cost, count_denied: *count_denied, shadow: *shadow }
    }
}

impl Move {
    fn after_us(self, now_us: u64, first: &Chosen, leaving_us: &[u64]) -> u64 {
        let windows = first.quotas.as_slice().iter().map(|quota| quota.window());
        let window_us = windows.max().expect("a window").as_micros() as u64;
        match self {
            Self::None => now_us,
            Self::Micros(us) => now_us + us,
            Self::Window(sixteenths, us) => now_us + window_us / 16 * sixteenths + us,
            Self::Leaving(_, _) if leaving_us.is_empty() => now_us,
            Self::Leaving(index, us) => index.get(leaving_us).saturating_add_signed(us).max(now_us),
            Self::Back(us) => now_us - us,
        }
    }
}

/// A server with its own clock, and stores that get the same calls under different keys.
struct World {
    runtime: Runtime,
    time: ManualTime,
    server: RedisServer,
    start_us: u64,
    packed: RedisStore,
    beside_decoy: RedisStore,
    sorted_set: RedisStore,
    names: Vec<(Name, Identity)>,
    decoy: Payer,
}

impl World {
    fn new() -> Self {
        let time = ManualTime::new();
        let server = RedisServer::options().time(&time).start();
        let store = |prefix: &str, layout| {
            let template = format!("{prefix}:<kind>:<identity>:<policy>:<window>");
            let builder = RedisStore::builder(server.unix_url()).layout(layout);
            let builder = builder.key_template(template.parse().unwrap());
            builder.deadline(Duration::from_secs(60)).build().unwrap()
        };
        let name = |i: usize| {
            (format!("policy-{}", i % 2).parse().unwrap(), Identity::user(&format!("{}", i / 2)))
        };
        Self {
            runtime: tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            start_us: time.now_us() + 2 * HOUR_US,
            packed: store("packed", Layout::Packed),
            beside_decoy: store("beside_decoy", Layout::Packed),
            sorted_set: store("sorted-set", Layout::SortedSet),
            names: (0..3).map(name).collect(),
            decoy: Payer::user("decoy", decoy_quota()),
            server,
            time,
        }
    }

    /// Forgets everything, and goes back to the start of time.
    fn begin(&self) {
        self.server.command(&["FLUSHALL"]).expect_ok();
        self.set_us(self.start_us);
        self.runtime.block_on(async {
            let full = self.decoy.cost(decoy_quota().units().get()).into();
            assert!(self.beside_decoy.spend(&full).await.unwrap().spent);
        });
    }

    fn set_us(&self, to_us: u64) {
        let now_us = self.time.now_us();
        self.time.advance(Duration::from_micros(to_us.saturating_sub(now_us)));
        self.time.step_back(Duration::from_micros(now_us.saturating_sub(to_us)));
    }

    fn charges<'a>(&'a self, chosen: &'a [Chosen]) -> Charges<'a> {
        crate::support::charges(chosen.iter().map(|one| {
            let (policy, identity) = &self.names[one.account];
            let charge = Charge::new(policy, identity, &one.quotas).with_cost(one.cost).unwrap();
            charge.count_denied(one.count_denied).shadow(one.shadow)
        }))
    }

    /// With a charge that is never spent and never denies: of a full ledger of a large quota, two
    /// units of which must leave first.
    fn with_decoy<'a>(&'a self, charges: &'a Charges<'_>) -> Charges<'a> {
        let decoy = self.decoy.cost(2).shadow(true);
        crate::support::charges(charges.as_slice().iter().copied().chain([decoy]))
    }

    fn spend(&self, charges: &Charges<'_>) -> [Answer; 3] {
        let with_decoy = self.with_decoy(charges);
        self.answers(charges, || {
            let packed = self.packed.spend(charges);
            (packed, self.beside_decoy.spend(&with_decoy), self.sorted_set.spend(charges))
        })
    }

    fn peek(&self, charges: &Charges<'_>) -> [Answer; 3] {
        let with_decoy = self.with_decoy(charges);
        self.answers(charges, || {
            let packed = self.packed.peek(charges);
            (packed, self.beside_decoy.peek(&with_decoy), self.sorted_set.peek(charges))
        })
    }

    fn answers<A, B, C>(
        &self,
        charges: &Charges<'_>,
        ask: impl FnOnce() -> (A, B, C),
    ) -> [Answer; 3]
    where
        A: Future<Output = Result<Receipt, slidegate::StoreError>>,
        B: Future<Output = Result<Receipt, slidegate::StoreError>>,
        C: Future<Output = Result<Receipt, slidegate::StoreError>>,
    {
        let standings = charges.as_slice().iter().map(|c| c.quotas().as_slice().len()).sum();
        self.runtime.block_on(async {
            let (a, b, c) = ask();
            let (a, b, c) = tokio::join!(a, b, c);
            [a, b, c].map(|receipt| Answer::new(&receipt.unwrap(), standings))
        })
    }

    /// What packed ledgers hold, and sorted sets.
    fn read(&self, charge: Charge<'_>) -> [AccountReading; 2] {
        self.runtime.block_on(async {
            let (packed, sorted_set) =
                tokio::join!(self.packed.read(charge), self.sorted_set.read(charge));
            [packed.unwrap(), sorted_set.unwrap()]
        })
    }

    fn refund(&self, charges: &Charges<'_>, spent: Spent) {
        self.runtime.block_on(async {
            for store in [&self.packed, &self.beside_decoy, &self.sorted_set] {
                store.refund(charges, spent).await.unwrap();
            }
        });
    }

    fn settle(&self, charges: &Charges<'_>, settlement: Settlement<'_>) {
        self.runtime.block_on(async {
            for store in [&self.packed, &self.beside_decoy, &self.sorted_set] {
                assert_eq!(store.settle(charges, settlement).await.unwrap(), Settled::Now);
            }
        });
    }

    fn reset(&self, charges: &Charges<'_>) {
        self.runtime.block_on(async {
            for store in [&self.packed, &self.beside_decoy, &self.sorted_set] {
                store.reset(charges).await.unwrap();
            }
        });
    }
}

/// Too large for the milliseconds, and of a window that no story outlives.
fn decoy_quota() -> Quota {
    Quota::new(NonZeroU32::new(4_200).unwrap(), Quota::MAX_WINDOW).unwrap()
}

/// Asserts that all three answer alike, and names the one that does not.
fn agreed([packed, beside_decoy, sorted_set]: [Answer; 3]) -> Result<Answer, TestCaseError> {
    prop_assert_eq!(&packed, &beside_decoy, "packed, and packed beside another charge");
    prop_assert_eq!(&packed, &sorted_set, "packed, and sorted set");
    Ok(packed)
}

/// Plays a story on all stores of Redis, and on one in memory if that is to answer alike.
fn play(world: &World, story: &Story, memory: bool) -> TestCaseResult {
    world.begin();
    let mut now_us = world.start_us;
    let clock = ManualClock::new(Timestamp::from_nanos(now_us * 1000));
    let in_memory = MemoryStore::builder().capacity(100).clock(clock.clone()).build();
    let compare = |answer: &Answer, receipt: Receipt| {
        prop_assert_eq!(answer, &Answer::new(&receipt, usize::MAX), "and in memory");
        Ok(())
    };
    let (mut past, mut leaving_us) = (vec![now_us], Vec::new());
    for (number, step) in story.steps.iter().enumerate() {
        let chosen = story.chosen(number, step);
        let everybody = story.everybody(number, step);
        let (charges, everybody) = (world.charges(&chosen), world.charges(&everybody));
        // Under the units that were in force until now.
        let before = story.everybody(number.saturating_sub(1), step);
        let before = world.charges(&before);
        let back = matches!(step.clock, Move::Back(_));
        if back {
            // What has left a window is forgotten with the next write. Until then, a clock that
            // steps back finds it there again in one layout and not in the other, so here all is
            // written before: a refund of units that were not spent.
            world.refund(&before, never_spent(now_us));
            in_memory.peek_now(&before).unwrap();
        }
        now_us = step.clock.after_us(now_us, &chosen[0], &leaving_us);
        world.set_us(now_us);
        clock.set(Timestamp::from_nanos(now_us * 1000));
        if back && memory {
            // The store in memory refunds what a step back has left in the future where it is; on
            // Redis it is pulled to the present first. After a look it is so everywhere.
            let answer = agreed(world.peek(&everybody))?;
            compare(&answer, in_memory.peek_now(&everybody).unwrap())?;
        }
        if number == story.change_at && number > 0 {
            // Under new ticks, the packed layout first forgets what has left by the old ones; the
            // sorted set does not know by which a score was made. So all is written under the old
            // ones, and read under the new ones, at the instant of the change.
            world.refund(&before, never_spent(now_us));
            agreed(world.peek(&everybody))?;
        }
        match step.call {
            Call::Spend => {
                past.push(now_us);
                let answer = agreed(world.spend(&charges))?;
                leaving_us.extend(answer.leaving_us());
                if memory {
                    compare(&answer, in_memory.spend_now(&charges).unwrap())?;
                }
            }
            Call::Peek => {}
            Call::RefundNewest => {
                world.refund(&charges, Spent::Newest);
                in_memory.refund_now(&charges, Spent::Newest);
            }
            Call::RefundAt(index) => {
                let at = Spent::At(Timestamp::from_nanos(*index.get(&past) * 1000));
                world.refund(&charges, at);
                in_memory.refund_now(&charges, at);
            }
            Call::Reset => {
                world.reset(&charges);
                in_memory.reset_now(&charges);
            }
            Call::Record(times) => {
                let mut recorded = Charges::new();
                for charge in charges.as_slice() {
                    let cost = charge.cost().saturating_mul(NonZeroU32::new(times).unwrap());
                    recorded.push(charge.record(cost)).unwrap();
                }
                let answer = agreed(world.spend(&recorded))?;
                if memory {
                    compare(&answer, in_memory.spend_now(&recorded).unwrap())?;
                }
            }
            Call::Settle(index, times) => {
                let at = Timestamp::from_nanos(*index.get(&past) * 1000);
                for charge in charges.as_slice() {
                    let units = charge.cost().get().saturating_mul(times) / 2;
                    let settlement = Settlement { at, units, once: None };
                    world.settle(&(*charge).into(), settlement);
                    in_memory.settle_now(&(*charge).into(), settlement).unwrap();
                }
            }
        }
        let answer = agreed(world.peek(&charges))?;
        leaving_us.extend(answer.leaving_us());
        leaving_us.drain(..leaving_us.len().saturating_sub(12));
        if memory {
            compare(&answer, in_memory.peek_now(&charges).unwrap())?;
        }
        let charge = charges.as_slice()[0];
        let [packed, sorted_set] = world.read(charge);
        prop_assert_eq!(&packed, &sorted_set, "packed, and sorted set");
        for (ledger, (remaining, _, reset_after)) in packed.ledgers.iter().zip(&answer.standings) {
            let (quota, first) = (ledger.quota, ledger.entries.first());
            prop_assert_eq!(quota.units().get().saturating_sub(ledger.spent()), *remaining);
            let leaves =
                first.map(|first| (first.stamp + quota.window()).saturating_since(answer.at));
            prop_assert_eq!(leaves.unwrap_or_default(), *reset_after);
        }
        if memory {
            prop_assert_eq!(packed, in_memory.read_now(charge), "and in memory");
        }
    }
    Ok(())
}

/// Units that were not spent: a refund of them changes nothing, but writes.
fn never_spent(now_us: u64) -> Spent {
    Spent::At(Timestamp::from_nanos((now_us + 10 * HOUR_US) * 1000))
}

fn window_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        3 => 1..=20_u64,
        3 => 21..=5_000_u64,
        2 => prop::sample::select(vec![1_000, 4_095, 4_096, 4_097, 60_000, 3_600_000, DAY_MS]),
        1 => 5_000..=30 * DAY_MS,
    ]
}

/// Few enough for milliseconds, whichever of them is in force.
fn fine_units() -> impl Strategy<Value = Vec<u32>> {
    prop_oneof![
        4 => prop::collection::vec(1..=14_u32, 1..5),
        3 => prop::collection::vec(15..=90_u32, 1..5),
        1 => prop::collection::vec(4_000..=4_096_u32, 1..4),
    ]
}

/// Too many for milliseconds, whichever of them is in force.
fn coarse_units() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(prop_oneof![3 => 4_097..=4_300_u32, 1 => 4_300..=9_000_u32], 1..5)
}

fn any_units() -> impl Strategy<Value = [Vec<u32>; 2]> {
    prop_oneof![
        3 => fine_units().prop_map(|units| [units.clone(), units]),
        1 => coarse_units().prop_map(|units| [units.clone(), units]),
    ]
}

/// On both sides of where ticks grow, crossed once.
fn crossing_units() -> impl Strategy<Value = [Vec<u32>; 2]> {
    (fine_units(), coarse_units(), any::<bool>()).prop_map(|(fine, coarse, up)| match up {
        true => [fine, coarse],
        false => [coarse, fine],
    })
}

/// So long that large quotas have ticks of several milliseconds.
fn long_window_ms() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => prop::sample::select(vec![4_097, 60_000, 3_600_000, DAY_MS]),
        3 => 5_000..100_000_u64,
        1 => 100_000..=30 * DAY_MS,
    ]
}

fn account(
    window_ms: impl Strategy<Value = u64>,
    units: impl Strategy<Value = [Vec<u32>; 2]>,
    kinds: &'static [(bool, bool)],
) -> impl Strategy<Value = AccountSpec> {
    let windows = prop::collection::btree_map(window_ms, units, 1..=3);
    (prop::sample::select(kinds), windows).prop_map(|((count_denied, shadow), windows)| {
        AccountSpec { count_denied, shadow, windows: windows.into_iter().collect() }
    })
}

const PLAIN: &[(bool, bool)] = &[(false, false)];
/// Whether denied requests count, and whether it is in shadow.
const ALL_KINDS: &[(bool, bool)] =
    &[(false, false), (false, false), (true, false), (false, true), (true, true)];

fn clock(back: bool) -> impl Strategy<Value = Move> {
    let near = || prop_oneof![Just(0), Just(-1), Just(1), Just(-1_000), -2_000..2_000_i64];
    prop_oneof![
        4 => Just(Move::None),
        3 => (1..3_000_u64).prop_map(Move::Micros),
        1 => (1..HOUR_US).prop_map(Move::Micros),
        2 => (0..6_u64, 0..2_000_u64).prop_map(|(part, us)| Move::Window(part, us)),
        1 => (10..40_u64, 0..2_000_u64).prop_map(|(part, us)| Move::Window(part, us)),
        4 => (any::<prop::sample::Index>(), near()).prop_map(|(i, us)| Move::Leaving(i, us)),
        // The store in memory takes less than 100 us for the unevenness of processors' counters.
        u32::from(back) => prop_oneof![100..5_000_u64, 100..HOUR_US].prop_map(Move::Back),
    ]
}

fn step(back: bool, call: impl Strategy<Value = Call>) -> impl Strategy<Value = Step> {
    let cost = prop_oneof![
        5 => Just(Cost::One),
        2 => (2..=9_u32).prop_map(Cost::Few),
        2 => (1..=60_u32).prop_map(Cost::Percent),
        1 => Just(Cost::Percent(100)),
    ];
    let costs = prop::array::uniform3(cost);
    (clock(back), any::<u8>(), costs, any::<prop::sample::Index>(), call).prop_map(
        |(clock, accounts, costs, units, call)| Step { clock, accounts, costs, units, call },
    )
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        20 => Just(Call::Spend),
        2 => Just(Call::Peek),
        2 => Just(Call::RefundNewest),
        3 => any::<prop::sample::Index>().prop_map(Call::RefundAt),
        1 => Just(Call::Reset),
        2 => (1..=4_u32).prop_map(Call::Record),
        3 => (any::<prop::sample::Index>(), 0..=5_u32).prop_map(|(i, n)| Call::Settle(i, n)),
    ]
}

fn story(
    account: impl Strategy<Value = AccountSpec>,
    step: impl Strategy<Value = Step>,
) -> impl Strategy<Value = Story> {
    let accounts = prop::collection::vec(account, 1..=3);
    (accounts, prop::collection::vec(step, 1..120), 0..120_usize)
        .prop_map(|(accounts, steps, change_at)| Story { accounts, steps, change_at })
}

fn check<S: Strategy>(cases: u32, strategy: S, test: impl Fn(&World, S::Value) -> TestCaseResult) {
    let world = World::new();
    let config = ProptestConfig {
        cases,
        max_shrink_iters: 100_000,
        max_shrink_time: 20_000,
        source_file: Some(file!()),
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    };
    let mut runner = TestRunner::new(config);
    if let Err(failure) = runner.run(&strategy, |value| test(&world, value)) {
        panic!("{failure}\n{runner}");
    }
}

#[test]
fn all_stores_agree_on_any_history() {
    check(
        CASES,
        story(account(window_ms(), any_units(), ALL_KINDS), step(true, any_call())),
        |world, story| play(world, &story, true),
    );
}

/// Ledgers of hundreds of slots that are written anew again and again, units leaving one by one as
/// others come.
#[test]
fn all_stores_agree_on_long_histories_of_large_ledgers() {
    let units = prop::collection::vec(129..=400_u32, 1..3).prop_map(|units| [units.clone(), units]);
    let move_on = prop_oneof![
        40 => (1..12_000_u64).prop_map(Move::Micros),
        1 => (0..12_u64, 0..2_000_u64).prop_map(|(part, us)| Move::Window(part, us)),
    ];
    let cost = prop_oneof![20 => Just(Cost::One), 2 => (2..=9_u32).prop_map(Cost::Few)];
    let call = prop_oneof![30 => Just(Call::Spend), 1 => any_call()];
    let step =
        (move_on, any::<u8>(), prop::array::uniform3(cost), any::<prop::sample::Index>(), call)
            .prop_map(|(clock, accounts, costs, units, call)| Step {
                clock,
                accounts,
                costs,
                units,
                call,
            });
    let accounts = prop::collection::vec(account(500..=3_000_u64, units, ALL_KINDS), 1..=2);
    let story = (accounts, prop::collection::vec(step, 600..900))
        .prop_map(|(accounts, steps)| Story { accounts, steps, change_at: usize::MAX });
    check(CASES / 8, story, |world, story| play(world, &story, true));
}

/// The store in memory changes its ticks with the next spend, Redis with the next look, so only
/// the layouts are compared.
#[test]
fn layouts_agree_where_units_cross_into_other_ticks() {
    check(
        CASES,
        story(account(long_window_ms(), crossing_units(), ALL_KINDS), step(true, any_call())),
        |world, story| play(world, &story, false),
    );
}

/// Spends alone, on a clock that never steps back, held against the true instants of what was
/// admitted; after a denial, at the last instant before what it promised and at that instant.
#[test]
fn promises_are_kept_by_the_true_instants() {
    let spends = step(false, Just(Call::Spend));
    check(CASES, story(account(window_ms(), any_units(), PLAIN), spends), |world, story| {
        world.begin();
        let mut now_us = world.start_us;
        let mut admitted = vec![model::Admitted::default(); story.accounts.len()];
        let mut leaving_us = Vec::new();
        for (number, step) in story.steps.iter().enumerate() {
            let chosen = story.chosen(number, step);
            let charges = world.charges(&chosen);
            now_us = step.clock.after_us(now_us, &chosen[0], &leaving_us);
            world.set_us(now_us);
            let answer = agreed(world.spend(&charges))?;
            leaving_us = answer.leaving_us();
            if answer.spent {
                for one in &chosen {
                    admitted[one.account].add(now_us * 1000, one.cost.get());
                }
                continue;
            }
            let retry_after = answer.standings.iter().map(|(_, retry, _)| *retry).max().unwrap();
            prop_assert!(!retry_after.is_zero(), "a denial says for how long");
            let promised_us = now_us + retry_after.as_micros() as u64;
            world.set_us(promised_us - 1);
            prop_assert!(!agreed(world.peek(&charges))?.spent, "denied until then");
            world.set_us(promised_us);
            prop_assert!(agreed(world.peek(&charges))?.spent, "allowed then");
            now_us = promised_us;
        }
        for (account, admitted) in story.accounts.iter().zip(&admitted) {
            for (window_ms, [units, _]) in &account.windows {
                let most = admitted.most_within(window_ms * 1_000_000);
                let units = u64::from(*units.iter().max().unwrap());
                prop_assert!(most <= units, "{most} of {units} in {window_ms} ms");
            }
        }
        Ok(())
    });
}

/// One account, without choices.
fn account_of(quota: Quota, cost: u32) -> Vec<Chosen> {
    let cost = NonZeroU32::new(cost).unwrap();
    vec![Chosen { account: 0, quotas: quota.into(), cost, count_denied: false, shadow: false }]
}

/// A packed ledger is read in pieces of 16 entries.
#[test]
fn entries_beyond_the_first_piece_are_found() {
    let world = World::new();
    world.begin();
    let at = |ms: u64| world.set_us(world.start_us + 1000 * ms);
    let (one, many) =
        (account_of(Quota::per_minute(200), 1), account_of(Quota::per_minute(200), 150));
    let (one, many) = (world.charges(&one), world.charges(&many));
    for number in 0..200 {
        at(100 * number);
        assert!(agreed(world.spend(&one)).unwrap().spent);
    }
    for number in 0..199 {
        at(60_000 + 100 * number);
        let left = agreed(world.peek(&one)).unwrap().standings[0];
        assert_eq!(left.0, 1, "one has left by then");
        assert_eq!(left.2, Duration::from_millis(100), "and the next is next");
        let wait = agreed(world.peek(&many)).unwrap().standings[0].1;
        // The 150th from the oldest, which may be one of those spent since.
        let leaves = if number < 51 { 14_900 } else { 14_900 + 40_000 };
        assert_eq!(wait, Duration::from_millis(leaves), "{number}");
        assert!(agreed(world.spend(&one)).unwrap().spent);
    }
}

/// The newest units, and some before them, while those after them stay.
#[test]
fn units_are_refunded_from_the_middle_and_the_rest_leaves_in_order() {
    let world = World::new();
    let at = |ms: u64| world.set_us(world.start_us + 1000 * ms);
    let quota = Quota::per_minute(400);
    let (one, many) = (account_of(quota, 1), account_of(quota, 150));
    let (one, many) = (world.charges(&one), world.charges(&many));
    for (spends, refunds) in (0..=9_u32).flat_map(|spends| [0, 1, 3, 12].map(|r| (spends, r))) {
        world.begin();
        assert!(agreed(world.spend(&many)).unwrap().spent);
        for number in 0..spends {
            at(1000 + 10 * u64::from(number));
            assert!(agreed(world.spend(&one)).unwrap().spent);
        }
        let third = Spent::At(Timestamp::from_nanos(1000 * (world.start_us + 1_020_000)));
        world.refund(&one, third);
        (0..refunds).for_each(|_| world.refund(&one, Spent::Newest));
        let gone = refunds + u32::from(spends > 2);
        let left = 400 - (150 + spends - gone.min(150 + spends));
        assert_eq!(agreed(world.peek(&one)).unwrap().standings[0].0, left, "{spends}, {refunds}");
        // The first leave together, the others one by one; later there are only new ones.
        let (leaving, alone) = ([60_000, 61_000, 61_005, 61_020, 61_085], [200_000, 200_010]);
        for ms in leaving.into_iter().chain(alone).chain([260_005, 260_020]) {
            at(ms);
            agreed(world.peek(&many)).unwrap();
            assert!(agreed(world.spend(&one)).unwrap().spent);
            agreed(world.peek(&one)).unwrap();
        }
    }
}

#[test]
fn a_peek_is_not_denied_by_a_charge_in_shadow() {
    let world = World::new();
    world.begin();
    let mut shadow = account_of(Quota::per_minute(1), 1);
    shadow[0].shadow = true;
    let charges = world.charges(&shadow);
    for spent in [1, 0, 0] {
        let answer = agreed(world.peek(&charges)).unwrap();
        assert!(answer.spent && answer.standings[0].0 == spent);
        assert!(agreed(world.spend(&charges)).unwrap().spent);
    }
}

#[test]
fn all_that_a_step_back_leaves_in_the_future_is_pulled_to_the_present() {
    let world = World::new();
    world.begin();
    let all = account_of(Quota::per_minute(10_000), 10_000);
    let charges = world.charges(&all);
    assert!(agreed(world.spend(&charges)).unwrap().spent);
    world.set_us(world.start_us - HOUR_US);
    let wait = agreed(world.spend(&charges)).unwrap().standings[0].1;
    assert!(wait <= Duration::from_secs(61), "{wait:?}");
}

/// A tick is a millisecond for 4,096 units in a minute and 15 ms for one more.
#[test]
fn a_refund_after_units_were_raised_finds_what_was_spent_before() {
    let world = World::new();
    world.begin();
    world.set_us(world.start_us + 3_000);
    let (few, more) =
        (account_of(Quota::per_minute(4), 2), account_of(Quota::per_minute(4_097), 2));
    assert!(agreed(world.spend(&world.charges(&few))).unwrap().spent);
    let at = Timestamp::from_nanos(1000 * (world.start_us + 3_000));
    world.refund(&world.charges(&more), Spent::At(at));
    assert_eq!(agreed(world.peek(&world.charges(&more))).unwrap().standings[0].0, 4_097);
}

/// A denial that is counted takes the oldest units' places, be it that of a charge in shadow.
#[test]
fn a_charge_in_shadow_counts_what_it_would_have_denied() {
    let world = World::new();
    world.begin();
    let mut chosen = account_of(Quota::per_minute(1), 1);
    (chosen[0].shadow, chosen[0].count_denied) = (true, true);
    let charges = world.charges(&chosen);
    for seconds in [0, 40, 80] {
        world.set_us(world.start_us + 1_000_000 * seconds);
        let answer = agreed(world.spend(&charges)).unwrap();
        assert!(answer.spent, "it denies nothing");
        assert_eq!(answer.standings[0].2, Duration::from_secs(60), "the newest is what is held");
    }
}

/// As long as there are more units than a quota kept to the millisecond can have, they are kept in
/// the ticks of a larger one, by both.
#[test]
fn denied_requests_are_counted_in_the_ticks_that_there_are() {
    let world = World::new();
    world.begin();
    let hourly = |units: u32, cost: u32| {
        let mut chosen = account_of(Quota::per_hour(units), cost);
        chosen[0].count_denied = true;
        chosen
    };
    world.set_us(world.start_us + 1_000_000);
    assert!(agreed(world.spend(&world.charges(&hourly(4_097, 4_097)))).unwrap().spent);
    for seconds in 2..20 {
        world.set_us(world.start_us + 1_000_000 * seconds + 1);
        assert!(!agreed(world.spend(&world.charges(&hourly(4_000, 300)))).unwrap().spent);
        agreed(world.peek(&world.charges(&hourly(4_000, 4_000)))).unwrap();
    }
}

/// What was stamped to the millisecond may be read in ticks of minutes before it leaves.
#[test]
fn a_key_lives_for_as_long_as_any_ticks_let_it_count() {
    let world = World::new();
    world.begin();
    world.set_us(world.start_us + 1);
    let (few, more) = (account_of(Quota::per_day(4), 2), account_of(Quota::per_day(5_000), 2));
    assert!(agreed(world.spend(&world.charges(&few))).unwrap().spent);
    let (_, _, reset_after) = agreed(world.peek(&world.charges(&more))).unwrap().standings[0];
    world.set_us(world.start_us + 1 + reset_after.as_micros() as u64 - 1);
    assert_eq!(agreed(world.peek(&world.charges(&more))).unwrap().standings[0].0, 4_998);
    world.set_us(world.start_us + 1 + reset_after.as_micros() as u64);
    assert_eq!(agreed(world.peek(&world.charges(&more))).unwrap().standings[0].0, 5_000);
}
