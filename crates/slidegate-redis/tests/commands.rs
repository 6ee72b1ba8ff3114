//! What the server sees: at most one call for each decision over one connection, by its clock alone,
//! and scripts that it has forgotten told again.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use slidegate::limit::{Charges, Receipt};
use slidegate::{Identity, Quota, Store, StoreError};
use slidegate_redis::{Layout, RedisStore};
use slidegate_testbed::{CommandCounts, ManualTime, RedisServer};

use crate::support::{Payer, charges};

const LAYOUTS: [Layout; 2] = [Layout::Packed, Layout::SortedSet];
const AMPLE: Duration = Duration::from_secs(60);

fn store(server: &RedisServer, layout: Layout) -> RedisStore {
    RedisStore::builder(server.url()).layout(layout).deadline(AMPLE).build().unwrap()
}

/// A look over the server's shoulder.
struct Monitor<'s> {
    server: &'s RedisServer,
    lines: BufReader<UnixStream>,
}

impl<'s> Monitor<'s> {
    fn start(server: &'s RedisServer) -> Self {
        let mut stream = UnixStream::connect(server.socket()).unwrap();
        stream.write_all(b"MONITOR\r\n").unwrap();
        let mut lines = BufReader::new(stream);
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        assert_eq!(first, "+OK\r\n");
        Self { server, lines }
    }

    /// The commands that clients have sent since the last look, in order; not what scripts call.
    fn seen(&mut self) -> Vec<String> {
        self.server.command(&["ECHO", "until here"]);
        let mut commands = Vec::new();
        loop {
            let mut line = String::new();
            self.lines.read_line(&mut line).unwrap();
            // Such as: +1767225600.000000 [0 127.0.0.1:50442] "EVALSHA" "5f0a…" "1" …
            let (source, command) = line.split_once("] ").unwrap();
            let mut words = command.split('"').skip(1).step_by(2);
            let command = words.next().unwrap().to_lowercase();
            if command == "echo" {
                return commands;
            }
            if !source.ends_with(" lua") {
                commands.push(command);
            }
        }
    }
}

async fn spend(store: &RedisStore, charges: &Charges<'_>) -> Receipt {
    store.spend(charges).await.unwrap()
}

#[tokio::test]
async fn every_decision_is_one_call() {
    for layout in LAYOUTS {
        let server = RedisServer::start();
        let store = store(&server, layout);
        let one = Payer::user("one", Quota::per_minute(3));
        let two_windows = [Quota::per_minute(2), Quota::per_day(4_500)];
        let three = ["api", "tenant", "search"]
            .map(|policy| Payer::new(policy, Identity::user("three"), &two_windows));
        let one = Charges::from(one.cost(2));
        let three = charges(three.iter().map(Payer::charge));
        // To connect.
        store.peek(&one).await.unwrap();
        let before = CommandCounts::of([&server]);
        let mut monitor = Monitor::start(&server);
        let mut decisions = 0;
        for (charges, allowed) in [(&one, 1), (&three, 2)] {
            for number in 0..4 {
                assert_eq!(store.peek(charges).await.unwrap().spent, number < allowed);
                assert_eq!(monitor.seen(), ["evalsha"], "a peek, {layout}");
                assert_eq!(spend(&store, charges).await.spent, number < allowed);
                assert_eq!(monitor.seen(), ["evalsha"], "a spend, {layout}");
                decisions += 2;
            }
        }
        let calls = CommandCounts::of([&server]).since(&before);
        assert_eq!(calls.calls("evalsha"), decisions);
        assert_eq!(calls.calls("time"), decisions, "the clock is read once for each");
    }
}

#[tokio::test]
async fn a_new_stores_first_decision_is_one_call_too() {
    for layout in LAYOUTS {
        let server = RedisServer::start();
        let payer = Payer::user("new", Quota::per_minute(3));
        let mut monitor = Monitor::start(&server);
        for round in 0..2 {
            let store = store(&server, layout);
            assert!(spend(&store, &payer.charge().into()).await.spent, "round {round}");
            let seen = monitor.seen();
            let count = |command| seen.iter().filter(|one| *one == command).count();
            assert_eq!((count("evalsha"), count("script"), count("eval")), (1, 2, 0), "{seen:?}");
            assert_eq!(store.connections(), 1);
        }
    }
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again_without_an_error() {
    for layout in LAYOUTS {
        let server = RedisServer::start();
        let store = store(&server, layout);
        let payer = Payer::user("forgotten", Quota::per_minute(50));
        let charges = Charges::from(payer.charge());
        assert_eq!(spend(&store, &charges).await.standings[0].remaining(), 49);
        let mut monitor = Monitor::start(&server);
        server.command(&["SCRIPT", "FLUSH"]).expect_ok();
        monitor.seen();
        assert_eq!(spend(&store, &charges).await.standings[0].remaining(), 48);
        assert_eq!(monitor.seen(), ["evalsha", "script", "evalsha"]);
        assert_eq!(spend(&store, &charges).await.standings[0].remaining(), 47);
        assert_eq!(monitor.seen(), ["evalsha"]);
        for _ in 0..10 {
            server.command(&["SCRIPT", "FLUSH"]).expect_ok();
            let all = (0..4).map(|_| spend(&store, &charges));
            let receipts = together(all).await;
            assert!(receipts.iter().all(|receipt| receipt.spent));
            store.refund(&charges, slidegate::limit::Spent::Newest).await.unwrap();
        }
        assert_eq!(store.peek(&charges).await.unwrap().standings[0].remaining(), 47 - 30);
        assert_eq!(store.connections(), 1);
    }
}

#[tokio::test]
async fn a_restarted_server_goes_on_where_it_was() {
    for layout in LAYOUTS {
        let server = RedisServer::options().appendonly().start();
        let store = store(&server, layout);
        let payer = Payer::user("restart", Quota::per_hour(8));
        let charges = Charges::from(payer.charge());
        let mut spent = 0;
        for _ in 0..3 {
            for _ in 0..2 {
                assert!(spend(&store, &charges).await.spent);
                spent += 1;
            }
            server.restart();
            // What finds the old connection broken cannot tell whether it was counted; it tells so,
            // and the next call makes a new connection.
            let receipt = match store.peek(&charges).await {
                Ok(receipt) => receipt,
                Err(_) => store.peek(&charges).await.unwrap(),
            };
            assert_eq!(receipt.standings[0].remaining(), 8 - spent, "{layout}");
        }
        assert_eq!(store.connections(), 4);
    }
}

/// The servers' clock stands in January 2026, and this process's where it is.
#[tokio::test]
async fn only_the_clock_of_redis_stamps_spends() {
    for layout in LAYOUTS {
        let time = ManualTime::new();
        let server = RedisServer::options().time(&time).start();
        let stores = [store(&server, layout), store(&server, layout)];
        let payer = Payer::user("skewed", Quota::per_hour(6));
        let charges = Charges::from(payer.charge());
        for hours_ago in [0, 5, 30] {
            time.advance(Duration::from_secs(3600 * hours_ago));
            for number in 0..8 {
                let receipt = spend(&stores[number % 2], &charges).await;
                assert_eq!(receipt.spent, number < 6, "both spend from one budget");
                assert_eq!(receipt.at.as_nanos(), time.now_us() * 1000);
                assert_eq!(receipt.standings[0].reset_after(), Duration::from_secs(3600));
            }
            time.advance(Duration::from_secs(3600) - Duration::from_micros(1));
            for store in &stores {
                let receipt = store.peek(&charges).await.unwrap();
                assert!(!receipt.spent);
                assert_eq!(receipt.standings[0].retry_after(), Duration::from_micros(1));
            }
            time.advance(Duration::from_micros(1));
            for store in &stores {
                assert_eq!(store.peek(&charges).await.unwrap().standings[0].remaining(), 6);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_at_once_share_one_connection() {
    for layout in LAYOUTS {
        let server = RedisServer::start();
        let store = store(&server, layout);
        let decide = |number: usize| {
            let store = store.clone();
            tokio::spawn(async move {
                let payer = Payer::user(&format!("{}", number % 50), Quota::per_minute(100));
                assert!(spend(&store, &payer.charge().into()).await.spent);
            })
        };
        let tasks: Vec<_> = (0..500).map(decide).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(store.connections(), 1);
        // The other is this test's own.
        assert_eq!(server.info("connected_clients"), "2");
        let calls = CommandCounts::of([&server]).calls("evalsha");
        assert!((16..=250).contains(&calls), "{layout}: {calls} calls");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stores_that_share_a_budget_admit_exactly_the_units() {
    for layout in LAYOUTS {
        for units in [137, 4_100] {
            let server = RedisServer::start();
            let stores = [(); 4].map(|()| store(&server, layout));
            let cost = if units > 4_096 { 41 } else { 1 };
            let decide = |number: usize| {
                let store = stores[number % 4].clone();
                tokio::spawn(async move {
                    let payer = Payer::user("shared", Quota::per_hour(units));
                    spend(&store, &payer.cost(cost).into()).await.spent
                })
            };
            let tasks: Vec<_> = (0..500).map(decide).collect();
            let mut admitted = 0;
            for task in tasks {
                admitted += u32::from(task.await.unwrap());
            }
            assert_eq!(admitted, units / cost, "{layout}");
        }
    }
}

/// Its request was decided otherwise in the meantime.
#[tokio::test]
async fn a_spend_that_is_answered_too_late_is_taken_back() {
    for layout in LAYOUTS {
        let server = RedisServer::start();
        let builder = RedisStore::builder(server.url()).layout(layout);
        let store = builder.deadline(Duration::from_millis(300)).build().unwrap();
        let payer = Payer::user("late", Quota::per_hour(10));
        let three = Charges::from(payer.cost(3));
        store.peek(&three).await.unwrap();
        let calls = |command: &str| CommandCounts::of([&server]).calls(command);
        let before = calls("evalsha");
        server.pause();
        for _ in 0..2 {
            let error = store.spend(&three).await.unwrap_err();
            assert!(matches!(error, StoreError::Deadline(_)), "{error}");
        }
        server.resume();
        crate::support::until("both are counted and taken back", || calls("evalsha") == before + 4)
            .await;
        let left = store.peek(&three).await.unwrap().standings[0].remaining();
        assert_eq!(left, 10, "{layout}");
    }
}

/// The outputs of all, which run at the same time.
async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut running: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut done = true;
        for (future, output) in &mut running {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(ready) => *output = Some(ready),
                    std::task::Poll::Pending => done = false,
                }
            }
        }
        if done { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    running.into_iter().map(|(_, output)| output.expect("all are done")).collect()
}
