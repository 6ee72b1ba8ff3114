//! What a store says of a server that would forget.

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};

use slidegate_redis::{RedisStore, ServerWarning};
use slidegate_testbed::RedisServer;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::scenario::patient;

/// Writes warnings down.
#[derive(Clone, Default)]
struct Warnings(Arc<Mutex<String>>);

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Batcher(&mut self.0.lock().unwrap()));
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct Batcher<'a>(&'a mut String);

impl Visit for Batcher<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        writeln!(self.0, "{field}: {value:?}").unwrap();
    }
}

/// What is found, and what is logged when a connection is made.
async fn look(store: RedisStore) -> (Vec<ServerWarning>, String) {
    // One at a time, and asked anew: what others want to hear is remembered for all of them.
    static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _alone = ALONE.lock().await;
    let warnings = Warnings::default();
    // The runtime has one thread, so this is where the connection is made.
    let _guard = tracing::subscriber::set_default(warnings.clone());
    tracing::callsite::rebuild_interest_cache();
    let findings = store.checkup().await.unwrap();
    let logged = warnings.0.lock().unwrap().clone();
    (findings, logged)
}

#[tokio::test]
async fn a_good_server_is_nothing_to_warn_of() {
    let server = RedisServer::start();
    assert_eq!(look(patient(&server.url())).await, (vec![], String::new()));
}

#[tokio::test]
async fn a_server_that_drops_keys_is_warned_of() {
    let server = RedisServer::options().password("opensesame");
    let server = server.line("maxmemory-policy allkeys-lru").start();
    let (findings, logged) = look(patient(&server.url())).await;
    assert_eq!(findings, [ServerWarning::Evicts("allkeys-lru".to_owned())]);
    for part in ["allkeys-lru", "set maxmemory-policy noeviction", "127.0.0.1"] {
        assert!(logged.contains(part), "{logged}");
    }
    assert!(!logged.contains("opensesame"), "{logged}");
}

#[tokio::test]
async fn a_replica_is_warned_of() {
    let server = RedisServer::start();
    server.command(&["REPLICAOF", "127.0.0.1", "1"]).expect_ok();
    let (findings, logged) = look(patient(&server.url())).await;
    assert_eq!(findings, [ServerWarning::Replica]);
    assert!(logged.contains("connect to its primary"), "{logged}");
}
