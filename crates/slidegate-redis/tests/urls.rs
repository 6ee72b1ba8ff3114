//! Every form of URL leads to a server that counts; errors show no password.

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use slidegate::limit::{Charges, Spent};
use slidegate::{Quota, Store, StoreError};
use slidegate_redis::{BuildError, Layout, RedisStore, RedisStoreBuilder, RedisTls};
use slidegate_testbed::{Certificates, Flavour, RedisCluster, RedisSentinels, RedisServer};

use crate::support::trace::Trace;
use crate::support::{Payer, charges, cluster_url, host, on_redis_and_valkey, sentinel_url};

const SECRET: &str = "hunter2hunter2";

fn builder(url: &str) -> RedisStoreBuilder {
    RedisStore::builder(url).deadline(Duration::from_secs(20))
}

/// Counts through the store, and shows no password.
async fn counts(store: &RedisStore) {
    let payer = Payer::user("somebody", Quota::per_hour(2));
    let charges = Charges::from(payer.charge());
    for expected in [true, true, false] {
        match store.spend(&charges).await {
            Ok(receipt) => assert_eq!(receipt.spent, expected, "{store}"),
            Err(error) => panic!("{store}: {}", whole(&error)),
        }
    }
    assert_no_secret(&format!("{store} {store:?}"));
}

/// Fails to count, and tells why without a password.
async fn fails(store: &RedisStore) -> String {
    let payer = Payer::user("somebody", Quota::per_hour(2));
    let error = store.spend(&payer.charge().into()).await.unwrap_err();
    let text = whole(&error);
    assert_no_secret(&text);
    assert_no_secret(&format!("{store} {store:?} {store:#?}"));
    text
}

/// An error with all its sources, as anybody may show it.
fn whole(error: &StoreError) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut next = error.source();
    while let Some(source) = next {
        write!(text, " / {source} {source:?} {source:#?}").unwrap();
        next = source.source();
    }
    text
}

fn assert_no_secret(text: &str) {
    assert!(!text.contains(SECRET), "{text}");
}

#[tokio::test]
async fn a_url_names_one_server_by_tcp_or_by_socket() {
    let server = RedisServer::start();
    let socket = server.socket();
    let host = host(&server.url()).to_owned();
    for url in [
        format!("redis://{host}"),
        format!("valkey://{host}/"),
        format!("unix://{}", socket.display()),
        format!("redis+unix://{}", socket.display()),
    ] {
        counts(&builder(&url).build().unwrap()).await;
        server.command(&["FLUSHALL"]).expect_ok();
    }
    let alone = RedisServer::options().unix_only().password(SECRET).start();
    counts(&builder(&alone.unix_url()).build().unwrap()).await;
}

#[tokio::test]
async fn a_url_can_name_a_database() {
    let server = RedisServer::start();
    let urls = [
        format!("redis://{}/3", host(&server.url())),
        format!("unix://{}?db=5", server.socket().display()),
    ];
    for (url, database) in urls.iter().zip(["db3", "db5"]) {
        counts(&builder(url).build().unwrap()).await;
        assert!(server.info(database).starts_with("keys=1,"), "{url}");
    }
    let none = builder(&format!("redis://{}/16", host(&server.url()))).build().unwrap();
    assert!(fails(&none).await.contains("DB index is out of range"));
}

#[test]
fn a_url_can_have_a_password_or_a_user_with_one() {
    on_redis_and_valkey(async |flavour| {
        let server = flavour.server().password(SECRET).start();
        counts(&builder(&server.url()).build().unwrap()).await;
        for (layout, commands) in [(Layout::Packed, PACKED), (Layout::SortedSet, SORTED_SET)] {
            server.command(&["FLUSHALL"]).expect_ok();
            let password = format!(">{SECRET}%40");
            let rules = ["ACL", "SETUSER", "limiter", "reset", "on", "~slidegate:*", &password];
            let rules = rules.into_iter().chain(COMMANDS.split(' ')).chain(commands.split(' '));
            server.command(&rules.collect::<Vec<_>>()).expect_ok();
            let by_tcp = format!("redis://limiter:{SECRET}%2540@{}", host(&server.url()));
            counts(&builder(&by_tcp).layout(layout).build().unwrap()).await;
            server.command(&["FLUSHALL"]).expect_ok();
            let socket = server.socket();
            let by_socket = format!("unix://{}?user=limiter&pass={SECRET}%2540", socket.display());
            let store = builder(&by_socket).layout(layout).build().unwrap();
            counts(&store).await;
            let payer = Payer::user("somebody", Quota::per_hour(2));
            store.refund(&payer.cost(2).into(), Spent::Newest).await.unwrap();
            counts(&store).await;
            assert_eq!(store.read(payer.charge()).await.unwrap().ledgers[0].spent(), 2);
            store.reset(&payer.charge().into()).await.unwrap();
            counts(&store).await;
            // The error names the missing permission.
            server.command(&["ACL", "SETUSER", "limiter", "-time"]).expect_ok();
            let error = fails(&store).await;
            let is_named = error.contains("no permissions to run the 'time' command");
            assert!(is_named || error.contains("can't run this command"), "{error}");
            server.command(&["ACL", "SETUSER", "limiter", "-evalsha"]).expect_ok();
            assert!(
                fails(&store)
                    .await
                    .contains("docs/redis.md lists the permissions that the user needs")
            );
        }
    });
}

/// All that the user of a store must be allowed, beside the keys of its template.
const COMMANDS: &str = "+evalsha +script|load +time +pexpire +del";
const PACKED: &str = "+getrange +setrange +set";
const SORTED_SET: &str = "+zadd +zcard +zcount +zrange +zrangebyscore +zrem +zremrangebyrank \
                          +zrevrangebyscore +getrange +set";

#[tokio::test]
async fn a_wrong_password_is_reported_and_shown_nowhere() {
    for flavour in Flavour::BOTH {
        let seen = Trace::start();
        let server = flavour.server().password("right").start();
        let cluster = flavour.cluster().without_replicas().password("right").start();
        let host_of = |url: String| host(&url).to_owned();
        let socket = server.socket().display().to_string();
        let hosts: Vec<String> = cluster.urls().into_iter().map(host_of).collect();
        for url in [
            format!("redis://:{SECRET}@{}", host(&server.url())),
            format!("redis://me:{SECRET}@{}/2", host(&server.url())),
            format!("unix://{socket}?user={SECRET}&pass={SECRET}"),
            format!("redis-cluster://me:{SECRET}@{}", hosts.join(",")),
        ] {
            let store = builder(&url).build().unwrap();
            for _ in 0..3 {
                let text = fails(&store).await;
                let says_so = ["WRONGPASS", "AuthenticationFailed", "authentication", "NOAUTH"];
                assert!(says_so.iter().any(|word| text.contains(word)), "{store}: {text}");
            }
        }
        // The right one is shown as little, whether something else is wrong or nothing is.
        let secretive = flavour.server().password(SECRET).start();
        let store = builder(&secretive.url()).build().unwrap();
        counts(&store).await;
        secretive.kill();
        fails(&store).await;
        fails(&store).await;
        let nobody = format!("redis-sentinel://:{SECRET}@127.0.0.1:1/m?sentinel_password={SECRET}");
        fails(&builder(&nobody).build().unwrap()).await;
        let text = seen.text();
        assert!(text.contains("connecting to Redis failed"), "something was traced: {text}");
        assert_no_secret(&text);
    }
}

fn pem(path: &std::path::Path) -> Vec<u8> {
    fs::read(path).unwrap()
}

fn authority(certificates: &Certificates) -> RedisTls {
    RedisTls::new().authority(pem(&certificates.ca))
}

/// Trusts the authority of the first, and shows the client's certificate of the second.
fn mutual(authority_of: &Certificates, client_of: &Certificates) -> RedisTls {
    authority(authority_of).client(pem(&client_of.client), pem(&client_of.client_key))
}

/// Another authority's servers, clients without a certificate and those with one of another
/// authority are turned away, each with the reason.
async fn tells_who_is_not_trusted(url: &str, certificates: &Certificates) {
    let other = Certificates::new();
    for (tls, reason) in [
        (mutual(&other, certificates), "invalid peer certificate: UnknownIssuer"),
        (RedisTls::new(), "invalid peer certificate: UnknownIssuer"),
        (authority(certificates), "CertificateRequired"),
        (mutual(certificates, &other), "UnknownCA"),
    ] {
        let error = fails(&builder(url).tls(tls).build().unwrap()).await;
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[tokio::test]
async fn tls_connects_with_a_private_authority() {
    let server = RedisServer::options().tls().password(SECRET).start();
    let tls = authority(server.certificates().unwrap());
    counts(&builder(&server.url()).tls(tls.clone()).build().unwrap()).await;
    let by_name = server.url().replace("127.0.0.1", "localhost");
    server.command(&["FLUSHALL"]).expect_ok();
    counts(&builder(&by_name).tls(tls).build().unwrap()).await;
    // Without any certificates, the machine's authorities are trusted.
    fails(&builder(&server.url()).build().unwrap()).await;
}

#[tokio::test]
async fn tls_connects_with_a_client_certificate() {
    let server = RedisServer::options().mutual_tls().start();
    let certificates = server.certificates().unwrap();
    tells_who_is_not_trusted(&server.url(), certificates).await;
    let tls = mutual(certificates, certificates);
    let shown = format!("{tls:?}");
    counts(&builder(&server.url()).tls(tls).build().unwrap()).await;
    let key = String::from_utf8(pem(&certificates.client_key)).unwrap();
    assert!(!shown.contains(key.lines().nth(1).unwrap()), "{shown}");
    // What is no certificate is an error and no panic.
    let nonsense = authority(certificates).client("nonsense", "nonsense");
    fails(&builder(&server.url()).tls(nonsense).build().unwrap()).await;
    fails(&builder(&server.url()).tls(RedisTls::new().authority("nonsense")).build().unwrap())
        .await;
}

#[tokio::test]
async fn sentinels_and_their_primaries_connect_by_tls() {
    let sentinels = RedisSentinels::options().mutual_tls().start();
    let url = sentinel_url(&sentinels);
    let certificates = sentinels.servers()[0].certificates().unwrap();
    tells_who_is_not_trusted(&url, certificates).await;
    let store = builder(&url).tls(mutual(certificates, certificates)).build().unwrap();
    counts(&store).await;
    sentinels.wait_until_replicated();

    sentinels.kill_primary();
    sentinels.wait_for_failover();
    let payer = Payer::user("somebody", Quota::per_hour(2));
    // The first call finds that the connection is gone.
    while store.peek(&payer.charge().into()).await.is_err() {}
    let receipt = store.spend(&payer.charge().into()).await.unwrap();
    assert!(!receipt.spent, "it knows what was spent");
}

#[tokio::test]
async fn all_nodes_of_a_cluster_connect_by_tls() {
    let cluster = RedisCluster::options().without_replicas().mutual_tls().start();
    let url = cluster_url(&cluster);
    let certificates = cluster.nodes()[0].certificates().unwrap();
    tells_who_is_not_trusted(&url, certificates).await;
    let store = builder(&url).tls(mutual(certificates, certificates)).build().unwrap();
    let payers: Vec<_> =
        (0..30).map(|user| Payer::user(&user.to_string(), Quota::per_hour(1))).collect();
    for spent in [true, false] {
        for payer in &payers {
            assert_eq!(store.spend(&payer.charge().into()).await.unwrap().spent, spent);
        }
    }
    for node in cluster.nodes() {
        assert!(node.command(&["DBSIZE"]).integer() > 0, "all nodes have a part of the slots");
    }
    // One request that is charged on several slots.
    let others = [31, 32, 33, 34].map(|user| Payer::user(&user.to_string(), Quota::per_hour(1)));
    let together = charges(others.iter().map(Payer::charge));
    for spent in [true, false] {
        assert_eq!(store.spend(&together).await.unwrap().spent, spent);
    }
}

#[test]
fn a_url_of_sentinels_finds_the_primary() {
    on_redis_and_valkey(async |flavour| {
        let sentinels = flavour.sentinels().start();
        let url = sentinel_url(&sentinels);
        counts(&builder(&url).build().unwrap()).await;
        assert_eq!(sentinels.primary().command(&["DBSIZE"]).integer(), 1);
        counts(&builder(&format!("{url}/2")).build().unwrap()).await;
        assert!(sentinels.primary().info("db2").starts_with("keys=1,"));
        // One sentinel that answers is enough.
        let with_strangers = url.replace("redis-sentinel://", "redis-sentinel://127.0.0.1:1,");
        sentinels.primary().command(&["FLUSHALL"]).expect_ok();
        counts(&builder(&with_strangers).build().unwrap()).await;
        let unknown = url.replace(sentinels.master_name(), "nobody");
        fails(&builder(&unknown).build().unwrap()).await;
    });
}

#[test]
fn a_cluster_connects_with_a_password() {
    on_redis_and_valkey(async |flavour| {
        let cluster = flavour.cluster().without_replicas().password(SECRET).start();
        let hosts: Vec<String> = cluster.urls().iter().map(|url| host(url).to_owned()).collect();
        let url = format!("redis-cluster://:{SECRET}@{}", hosts.join(","));
        counts(&builder(&url).build().unwrap()).await;
        cluster.nodes().iter().for_each(|node| node.command(&["FLUSHALL"]).expect_ok());
        // Any node will do.
        let one = format!("redis-cluster://default:{SECRET}@{}/0", hosts[1]);
        counts(&builder(&one).build().unwrap()).await;
        let without = format!("redis-cluster://{}", hosts[1]);
        let store = builder(&without).build().unwrap();
        fails(&store).await;
    });
}

#[tokio::test]
async fn a_cluster_connects_without_a_password() {
    let cluster = RedisCluster::options().without_replicas().start();
    counts(&builder(&cluster_url(&cluster)).build().unwrap()).await;
}

#[test]
fn a_store_that_cannot_be_built_says_why() {
    let url = "redis://127.0.0.1:6379";
    let template = |text: &str| text.parse::<slidegate_redis::KeyTemplate>().unwrap();
    let name = "api".parse::<slidegate::Name>().unwrap();
    let cluster = format!("redis-cluster://:{SECRET}@127.0.0.1:6379");
    let windows_apart = template("rl:<identity>:<window>");
    for (builder, part) in [
        (RedisStore::builder(url).deadline(Duration::ZERO), "deadline is 0"),
        (RedisStore::builder(url).tls(RedisTls::new()), "rediss://"),
        (RedisStore::builder(format!("{SECRET}@localhost")), "no scheme"),
        (RedisStore::builder(format!("http://:{SECRET}@localhost")), "\"http\""),
        (RedisStore::builder(format!("redis://:{SECRET}@host:port")), "cannot be read"),
        (RedisStore::builder(format!("redis-sentinel://:{SECRET}@host")), "master's name"),
        (RedisStore::builder(format!("{cluster}/2")), "database \"2\""),
        (RedisStore::builder(&cluster).key_template(windows_apart.clone()), "rl:<identity>"),
        (RedisStore::builder(&cluster).key_template_of(name, windows_apart), "rl:<identity>"),
    ] {
        let error: BuildError = builder.build().unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(text.contains(part), "{text}");
        assert_no_secret(&text);
    }
    let both = RedisStore::builder("unix:///run/redis.sock").tls(RedisTls::new()).build();
    assert_eq!(both.unwrap_err(), BuildError::UnusedCertificates);
}

/// Two ledgers under one key would count each other's units.
#[tokio::test]
async fn two_ledgers_of_one_request_need_two_keys() {
    let server = RedisServer::start();
    let template = "ratelimit:<identity>".parse().unwrap();
    let store = builder(&server.url()).key_template(template).build().unwrap();
    let quotas = [Quota::per_minute(5), Quota::per_hour(50)];
    let payer = Payer::new("api", slidegate::Identity::user("42"), &quotas);
    let error = store.spend(&payer.charge().into()).await.unwrap_err();
    assert!(whole(&error).contains("add <policy> or <window>"), "{error}");
    assert_eq!(server.command(&["DBSIZE"]).integer(), 0);
}
