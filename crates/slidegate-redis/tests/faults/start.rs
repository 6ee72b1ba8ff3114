//! What a store says of a server that would forget.

use slidegate_redis::{RedisStore, ServerWarning};
use slidegate_testbed::Flavour;

use super::scenario::patient;
use crate::support::trace::Trace;

/// What is found, and what is logged when a connection is made.
async fn look(store: RedisStore) -> (Vec<ServerWarning>, String) {
    let trace = Trace::start();
    let findings = store.checkup().await.unwrap();
    (findings, trace.warnings())
}

#[tokio::test]
async fn a_good_server_is_nothing_to_warn_of() {
    for flavour in Flavour::BOTH {
        let server = flavour.server().start();
        assert_eq!(look(patient(&server.url())).await, (vec![], String::new()));
    }
}

#[tokio::test]
async fn a_server_that_drops_keys_is_warned_of() {
    for flavour in Flavour::BOTH {
        let server = flavour.server().password("opensesame");
        let server = server.line("maxmemory-policy allkeys-lru").start();
        let (findings, logged) = look(patient(&server.url())).await;
        assert_eq!(findings, [ServerWarning::Evicts("allkeys-lru".to_owned())]);
        for part in ["allkeys-lru", "set maxmemory-policy noeviction", "127.0.0.1"] {
            assert!(logged.contains(part), "{logged}");
        }
        assert!(!logged.contains("opensesame"), "{logged}");
    }
}

#[tokio::test]
async fn a_replica_is_warned_of() {
    for flavour in Flavour::BOTH {
        let server = flavour.server().start();
        server.command(&["REPLICAOF", "127.0.0.1", "1"]).expect_ok();
        let (findings, logged) = look(patient(&server.url())).await;
        assert_eq!(findings, [ServerWarning::Replica]);
        assert!(logged.contains("connect to its primary"), "{logged}");
    }
}
