//! Fleets in a reduced form of what `bench scale` runs.

use std::time::Duration;

use slidegate::{Consistency, Quota};
use slidegate_simulation::{Change, Figures, RoundTripTime, Scenario};

/// Accounts with this quota, without waiting for Redis.
fn leased(quota: Quota) -> Scenario {
    Scenario { consistency: Consistency::ASYNC, ..Scenario::new(quota) }
}

fn run(scenario: &Scenario) -> Figures {
    let figures = scenario.run();
    assert_eq!(figures.beyond, 0, "{figures:?} of {scenario:?}");
    figures
}

#[test]
fn the_same_scenario_gives_the_same_figures() {
    let of_seed = |seed| {
        let (short, fast) = (Duration::from_secs(5), Quota::per_second(500));
        let way = RoundTripTime { loss: 0.01, ..RoundTripTime::FAR };
        run(&Scenario { seed, gateways: 5, round_trip: way, measured: short, ..leased(fast) })
    };
    assert_eq!(of_seed(1), of_seed(1));
    assert_ne!(of_seed(1), of_seed(2));
    assert_eq!(run(&turmoil(7)), run(&turmoil(7)));
}

#[test]
fn many_accounts_with_denials_and_refunds_give_the_same_figures() {
    let many = Scenario {
        gateways: 3,
        accounts: 1000,
        measured: Duration::from_secs(10),
        ..leased(Quota::new(20.try_into().unwrap(), Duration::from_secs(4)).unwrap())
    };
    assert_eq!(run(&many), run(&many));
}

#[test]
fn a_lukewarm_account_makes_few_calls_and_gets_its_quota() {
    let thousand = Scenario { accounts: 200, demand: 0.6, ..leased(Quota::per_minute(1000)) };
    let (warm_up, measured) = (Duration::from_secs(5), Duration::from_secs(20));
    for round_trip in [RoundTripTime::NEAR, RoundTripTime::REGION, RoundTripTime::FAR] {
        let ten_a_second = Scenario { round_trip, warm_up, measured, ..thousand.clone() };
        let figures = run(&ten_a_second);
        assert!(figures.calls_per_1000() <= 100.0, "{figures:?} at {round_trip:?}");
        let twice = Scenario { round_trip, accounts: 5, ..leased(Quota::per_minute(1000)) };
        let figures = run(&twice);
        assert!(figures.used >= 0.95, "{figures:?} at {round_trip:?}");
    }
}

#[test]
fn a_hundred_gateways_share_a_hot_account_and_none_starves() {
    for round_trip in [RoundTripTime::REGION, RoundTripTime::FAR] {
        let hot = Scenario { gateways: 100, round_trip, ..leased(Quota::per_minute(10_000)) };
        let figures = run(&hot);
        assert!(figures.used >= 0.95, "{figures:?}");
        assert!(figures.least_share >= 0.5, "{figures:?}");
    }
}

#[test]
fn gateways_in_another_region_get_their_part_of_a_hot_account() {
    for gateways in [2, 100] {
        let figures = run(&Scenario {
            gateways,
            round_trip_of_others: Some(RoundTripTime::FAR),
            ..leased(Quota::per_minute(10_000))
        });
        assert!(figures.used >= 0.95, "{figures:?}");
        assert!(figures.least_share >= 0.5, "{figures:?}");
    }
}

/// Gateways that join, pause with leases in hand and on their way, and die, at a network that loses
/// messages.
fn turmoil(seed: u64) -> Scenario {
    fastrand::seed(seed);
    let (gateways, second) = (4, Duration::from_secs(1));
    // Most have few units and short windows, because what is used late shows there. The others have leases
    // that last longer.
    let (units, window_s) = match seed {
        0..100 => ([20, 60, 200, 1000][seed as usize % 4], 2),
        _ => [(200, 20), (1000, 60)][seed as usize % 2],
    };
    let window = second * window_s;
    let measured = (second * 29).max(window * 3 / 2);
    let mut changes = Vec::new();
    for at in 1..28 {
        let (at, gateway) = (measured * at / 29, fastrand::usize(1..gateways));
        changes.push(match fastrand::u8(..10) {
            0 => (at, Change::Join),
            1 if gateway == 3 => (at, Change::Die { gateway }),
            2..5 => (at, Change::CutOff { gateway, lasts: second.mul_f64(3.0 * fastrand::f64()) }),
            _ => (at, Change::Pause { gateway, lasts: second.mul_f64(2.0 * fastrand::f64()) }),
        });
    }
    let round_trip = RoundTripTime {
        loss: 0.05,
        ..[RoundTripTime::REGION, RoundTripTime::FAR][seed as usize % 2]
    };
    Scenario {
        seed,
        gateways,
        round_trip,
        demand: 0.5 + 2.0 * fastrand::f64(),
        warm_up: second,
        measured,
        changes,
        ..leased(Quota::new(units.try_into().unwrap(), window).unwrap())
    }
}

#[test]
fn no_window_is_ever_exceeded_whatever_becomes_of_the_gateways() {
    let (mut full, mut unwaited) = (0, 0);
    for seed in 0..110 {
        let scenario = turmoil(seed);
        let figures = run(&scenario);
        full += u32::from(figures.most == scenario.quota.units().get());
        unwaited += u32::from(figures.waited < 0.9);
    }
    assert!(full >= 50, "{full} had a window with all of the quota");
    assert!(unwaited >= 50, "{unwaited} decided from leases");
}
