//! Requests whose charges a cluster keeps in several places: all are spent or none, never too many,
//! and what belongs together is one call.

use std::num::NonZeroU32;
use std::time::Duration;

use slidegate::limit::{Charge, Charges, Receipt, Spent};
use slidegate::{Identity, ManualClock, MemoryStore, Quota, Standing, Store, Timestamp};
use slidegate_redis::{Layout, RedisStore};
use slidegate_testbed::{CommandCounts, ManualTime, RedisCluster};

use crate::support::{Payer, charges, cluster_url};

const LAYOUTS: [Layout; 2] = [Layout::Packed, Layout::SortedSet];

fn store(cluster: &RedisCluster, layout: Layout) -> RedisStore {
    let builder = RedisStore::builder(cluster_url(cluster)).layout(layout);
    builder.deadline(Duration::from_secs(60)).build().unwrap()
}

fn flush(cluster: &RedisCluster) {
    cluster.nodes().iter().for_each(|node| node.command(&["FLUSHALL"]).expect_ok());
}

/// Users whose accounts are each on another node, by the order of their slots.
fn users_apart(cluster: &RedisCluster) -> Vec<Identity> {
    let slot = |user: &Identity| cluster.slot_of(&format!("{{{user}}}"));
    let mut users: Vec<Identity> = Vec::new();
    for number in 0.. {
        let user = Identity::user(&format!("{number}"));
        let port = |user: &Identity| cluster.primary_of(slot(user)).port();
        if users.iter().all(|other| port(other) != port(&user)) {
            users.push(user);
        }
        if users.len() == 3 {
            break;
        }
    }
    users.sort_by_key(slot);
    users
}

async fn spend(store: &RedisStore, charges: &Charges<'_>) -> Receipt {
    store.spend(charges).await.unwrap()
}

async fn remaining(store: &RedisStore, payer: &Payer) -> u32 {
    store.peek(&payer.charge().into()).await.unwrap().standings[0].remaining()
}

#[tokio::test]
async fn charges_on_several_slots_are_spent_as_on_one_server() {
    let time = ManualTime::new();
    let cluster = RedisCluster::options().without_replicas().time(&time).start();
    let users = users_apart(&cluster);
    for layout in LAYOUTS {
        all_or_nothing(&cluster, &users, layout).await;
        one_identity_is_one_call(&cluster, &users, layout).await;
        what_fails_halfway_is_taken_back(&cluster, &users, layout).await;
        answers_are_those_of_one_place(&cluster, &time, &users, layout).await;
    }
}

/// Refunds each charge at the time that the receipt has for it.
async fn refund(store: &RedisStore, request: &Charges<'_>, receipt: &Receipt) {
    for (index, charge) in request.as_slice().iter().enumerate() {
        let at = Spent::At(receipt.at_of(index));
        store.refund(&(*charge).into(), at).await.unwrap();
    }
}

async fn all_or_nothing(cluster: &RedisCluster, users: &[Identity], layout: Layout) {
    for tight in 0..3 {
        flush(cluster);
        let store = store(cluster, layout);
        let units = |i| if i == tight { 2 } else { 5 };
        let payer = |i: usize| Payer::new("api", users[i], &[Quota::per_minute(units(i))]);
        let payers: Vec<Payer> = (0..3).map(payer).collect();
        // In any order of the request.
        let order = [[0, 1, 2], [2, 1, 0], [1, 0, 2]][tight];
        let request = charges(order.iter().map(|i| payers[*i].charge()));
        for number in 0..4 {
            let receipt = spend(&store, &request).await;
            assert_eq!(receipt.spent, number < 2, "{layout}");
            let quotas = order.map(|i| Quota::per_minute(units(i)));
            assert!(receipt.standings.iter().map(Standing::quota).eq(quotas), "in order");
            for (standing, i) in receipt.standings.iter().zip(order) {
                let spent = 2.min(number + 1);
                assert_eq!(standing.remaining(), units(i) - spent, "{layout}");
                let denies = i == tight && number >= 2;
                assert_eq!(!standing.retry_after().is_zero(), denies, "{layout}");
            }
        }
        store.refund(&request, Spent::Newest).await.unwrap();
        assert!(spend(&store, &request).await.spent, "one was refunded, everywhere");
        let at = spend(&store, &charges(payers[..1].iter().map(Payer::charge))).await.at;
        store.refund(&request, Spent::At(at)).await.unwrap();
        assert!(
            store.peek(&request).await.unwrap().spent,
            "{layout}: one was refunded by its time"
        );
        store.reset(&request).await.unwrap();
        for (i, payer) in payers.iter().enumerate() {
            assert_eq!(remaining(&store, payer).await, units(i));
        }
    }
}

async fn one_identity_is_one_call(cluster: &RedisCluster, users: &[Identity], layout: Layout) {
    flush(cluster);
    let store = store(cluster, layout);
    let windows = [Quota::per_minute(2), Quota::per_day(5_000)];
    let payers = ["api", "search", "login"].map(|policy| Payer::new(policy, users[1], &windows));
    let request = charges(payers.iter().map(Payer::charge));
    store.peek(&request).await.unwrap();
    for number in 0..4 {
        let before = CommandCounts::of(cluster.nodes());
        let receipt = match number {
            3 => store.peek(&request).await.unwrap(),
            _ => spend(&store, &request).await,
        };
        assert_eq!(receipt.spent, number < 2);
        assert_eq!(receipt.standings.len(), 6);
        let calls = CommandCounts::of(cluster.nodes()).since(&before);
        assert_eq!(calls.calls("evalsha"), 1, "{layout}: {calls:?}");
        assert_eq!(calls.calls("time"), 1, "{layout}: {calls:?}");
    }
}

async fn what_fails_halfway_is_taken_back(
    cluster: &RedisCluster,
    users: &[Identity],
    layout: Layout,
) {
    flush(cluster);
    let store = store(cluster, layout);
    let payers: Vec<Payer> =
        users.iter().map(|user| Payer::new("api", *user, &[Quota::per_minute(4)])).collect();
    let request = charges(payers.iter().map(Payer::charge));
    assert!(spend(&store, &request).await.spent);
    let last = &users[2];
    let (key, slot) = (format!("slidegate:{{{last}}}:api:min"), format!("{{{last}}}"));
    let node = cluster.primary_of(cluster.slot_of(&slot));
    node.command(&["DEL", &key]).integer();
    node.command(&["LPUSH", &key, "not a ledger"]).integer();
    for _ in 0..3 {
        let error = store.spend(&request).await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("WRONGTYPE"), "{layout}: {source}");
    }
    for payer in &payers[..2] {
        assert_eq!(remaining(&store, payer).await, 3, "{layout}: what was spent is back");
    }
}

/// One after the other, requests are answered as by a store that has all in one place.
async fn answers_are_those_of_one_place(
    cluster: &RedisCluster,
    time: &ManualTime,
    users: &[Identity],
    layout: Layout,
) {
    flush(cluster);
    let store = store(cluster, layout);
    let now = || Timestamp::from_nanos(time.now_us() * 1000);
    let clock = ManualClock::new(now());
    let memory = MemoryStore::builder().capacity(100).clock(clock.clone()).build();
    let mut random = fastrand::Rng::with_seed(11);
    let windows = [Quota::per_second(3), Quota::per_minute(7)];
    let account = |i: usize| Payer::new(["a", "b"][i / 3], users[i % 3], &windows[..1 + i % 2]);
    let payers: Vec<Payer> = (0..6).map(account).collect();
    for number in 0..400 {
        if random.u8(..3) == 0 {
            time.advance(Duration::from_micros(random.u64(..2_000_000)));
            clock.set(now());
        }
        let mut list: Vec<Charge<'_>> = Vec::new();
        for payer in &payers {
            if random.u8(..3) > 0 {
                let cost = NonZeroU32::new(random.u32(1..=2)).unwrap();
                let charge = payer.charge().with_cost(cost).unwrap();
                list.push(charge.count_denied(random.u8(..4) == 0).shadow(random.u8(..4) == 0));
            }
        }
        random.shuffle(&mut list);
        let request = charges(list.iter().copied());
        let spent = random.u8(..4) > 0;
        let (ours, expected) = match spent {
            true => (spend(&store, &request).await, memory.spend_now(&request).unwrap()),
            false => (store.peek(&request).await.unwrap(), memory.peek_now(&request).unwrap()),
        };
        assert_eq!(ours.spent, expected.spent, "{layout}, {number}: {list:#?}");
        assert_eq!(ours.standings, expected.standings, "{layout}, {number}: {list:#?}");
        if spent && expected.spent && random.u8(..6) == 0 {
            refund(&store, &request, &ours).await;
            memory.refund_now(&request, Spent::At(ours.at));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_never_over_admit_and_leave_nothing_behind() {
    let cluster = RedisCluster::options().without_replicas().start();
    let users = users_apart(&cluster);
    for layout in LAYOUTS {
        flush(&cluster);
        let stores = [(); 4].map(|()| store(&cluster, layout));
        // Everybody has one account in common, and each of two groups another.
        let units: &'static [u32; 3] = &[40, 25, 30];
        let payers = move |users: &[Identity]| -> Vec<Payer> {
            let payer = |i: usize| Payer::new("api", users[i], &[Quota::per_hour(units[i])]);
            (0..3).map(payer).collect()
        };
        let decide = |number: usize| {
            let (store, users) = (stores[number % 4].clone(), users.clone());
            tokio::spawn(async move {
                let payers = payers(&users);
                let group = 1 + number % 2;
                let mut list = vec![payers[0].charge(), payers[group].charge()];
                if number.is_multiple_of(3) {
                    list.reverse();
                }
                (spend(&store, &charges(list)).await.spent, group)
            })
        };
        let tasks: Vec<_> = (0..400).map(decide).collect();
        let mut admitted = [0; 3];
        for task in tasks {
            let (spent, group) = task.await.unwrap();
            admitted[group] += u32::from(spent);
            admitted[0] += u32::from(spent);
        }
        for (i, payer) in payers(&users).iter().enumerate() {
            assert!(admitted[i] <= units[i], "{layout}: {} of {}", admitted[i], units[i]);
            let left = remaining(&stores[i], payer).await;
            assert_eq!(left, units[i] - admitted[i], "{layout}: exactly what was admitted is held");
        }
        // When it is quiet, all that is left can be had.
        let payers = payers(&users);
        for group in [1, 2] {
            let both = charges([payers[0].charge(), payers[group].charge()]);
            while spend(&stores[group], &both).await.spent {
                admitted[0] += 1;
                admitted[group] += 1;
            }
        }
        assert_eq!(admitted[0], units[0], "{layout}");
        assert!(admitted[1] <= units[1] && admitted[2] <= units[2], "{layout}");
    }
}

/// Each place stamps by its own clock and at its own instant; a refund finds all of them.
#[tokio::test]
async fn a_refund_by_the_receipts_time_takes_back_all_charges() {
    let cluster = RedisCluster::options().without_replicas().start();
    let users = users_apart(&cluster);
    for layout in LAYOUTS {
        flush(&cluster);
        let store = store(&cluster, layout);
        let payers: Vec<Payer> =
            users.iter().map(|user| Payer::new("api", *user, &[Quota::per_hour(100)])).collect();
        let request = charges(payers.iter().map(Payer::charge));
        for number in 0..60 {
            let receipt = spend(&store, &request).await;
            refund(&store, &request, &receipt).await;
            for payer in &payers {
                assert_eq!(remaining(&store, payer).await, 100, "{layout}: refund {number}");
            }
        }
    }
}

/// As when a client goes away while its request is decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_dropped_halfway_spends_all_its_charges_or_none() {
    let cluster = RedisCluster::options().without_replicas().start();
    let users = users_apart(&cluster);
    let store = store(&cluster, Layout::Packed);
    let payers: Vec<Payer> =
        users.iter().map(|user| Payer::new("api", *user, &[Quota::per_hour(1_000)])).collect();
    let request = charges(payers.iter().map(Payer::charge));
    spend(&store, &request).await;
    for number in 0..200 {
        let patience = Duration::from_micros(20 * (number % 50));
        let _ = tokio::time::timeout(patience, store.spend(&request)).await;
    }
    let mut spent = Vec::new();
    crate::support::until("nothing is under way", || {
        let calls = CommandCounts::of(cluster.nodes()).calls("evalsha");
        spent.push(calls);
        spent.len() > 20 && spent[spent.len() - 20..].iter().all(|earlier| *earlier == calls)
    })
    .await;
    let first = remaining(&store, &payers[0]).await;
    for payer in &payers[1..] {
        assert_eq!(remaining(&store, payer).await, first, "as many as of the first");
    }
}

/// An identity without a value leaves the braces of a template empty.
#[tokio::test]
async fn everybodys_one_account_has_its_windows_together() {
    let cluster = RedisCluster::options().without_replicas().start();
    let windows = [Quota::per_second(2), Quota::per_minute(2), Quota::per_day(5_000)];
    for template in ["slidegate:{<kind>:<identity>}:<policy>:<window>", "rl:{<identity>}:<window>"]
    {
        for identity in [Identity::everyone(), Identity::anonymous(), Identity::user("42")] {
            flush(&cluster);
            let builder = RedisStore::builder(cluster_url(&cluster));
            let builder = builder.key_template(template.parse().unwrap());
            let store = builder.deadline(Duration::from_secs(60)).build().unwrap();
            let payer = Payer::new("api", identity, &windows);
            for number in 0..3 {
                let receipt = store.spend(&payer.charge().into()).await;
                let receipt = receipt.unwrap_or_else(|error| {
                    let source = std::error::Error::source(&error).map(ToString::to_string);
                    panic!("{template} for {identity}: {error}: {source:?}")
                });
                assert_eq!(receipt.spent, number < 2);
            }
        }
    }
}
