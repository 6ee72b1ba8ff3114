//! Which runtime does the I/O.

use std::thread;
use std::time::Duration;

use slidegate::{Quota, Store};
use slidegate_redis::RedisStore;
use slidegate_testbed::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::support::Payer;

fn current_thread() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_busy_runtime_does_not_delay_decisions_of_other_runtimes() {
    let server = RedisServer::start();
    let io = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let deadline = Duration::from_secs(5);
    let store = RedisStore::builder(server.url()).deadline(deadline);
    let store = store.runtime(io.handle().clone()).build().unwrap();
    let payer = Payer::user("42", Quota::per_minute(100));
    let (busy, is_busy) = oneshot::channel();
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    thread::scope(|scope| {
        let (store, payer) = (&store, &payer);
        let first = scope.spawn(move || {
            current_thread().block_on(async {
                store.spend(&payer.charge().into()).await.unwrap();
                busy.send(()).unwrap();
                // As a task that computes for a long time does.
                let _ = is_over.recv();
            });
        });
        current_thread().block_on(async {
            is_busy.await.unwrap();
            for _ in 0..20 {
                let receipt = store.spend(&payer.charge().into()).await;
                assert!(receipt.expect("an answer within the deadline").spent);
            }
        });
        drop(over);
        first.join().unwrap();
    });
    assert_eq!(store.connections(), 1, "the first connection is the only one");
}

#[test]
fn a_connection_outlives_the_runtime_of_its_first_call() {
    let server = RedisServer::start();
    let io = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let store = RedisStore::builder(server.url()).deadline(Duration::from_secs(5));
    let store = store.runtime(io.handle().clone()).build().unwrap();
    let payer = Payer::user("42", Quota::per_minute(100));
    for _ in 0..3 {
        current_thread().block_on(store.spend(&payer.charge().into())).unwrap();
    }
    assert_eq!(store.connections(), 1);
}
