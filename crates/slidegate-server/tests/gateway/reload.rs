//! Other rules without a restart.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use slidegate_testbed::http1::response;
use slidegate_testbed::{Gateway, GatewayOptions, RedisServer, Upstream, Wire, wait_until};

use crate::{configure, options};

/// Reloads that were well, or not.
fn reloads(gateway: &Gateway, result: &str) -> f64 {
    gateway.metric("slidegate_config_reloads_total", result)
}

fn setup(upstream: &Upstream, quota: &str) -> GatewayOptions {
    configure(upstream).policy("api", quota, "")
}

/// How many of the next requests pass before one is refused.
fn allowed(gateway: &Gateway) -> usize {
    let mut wire = gateway.wire();
    (0..50).take_while(|_| wire.get("/", "").status() == 200).count()
}

#[test]
fn history_is_kept_whatever_becomes_of_the_quota() {
    let upstream = Upstream::simple();
    for by_signal in [true, false] {
        let gateway = setup(&upstream, "3/min").start();
        assert_eq!(allowed(&gateway), 3);
        for (times, quota, expected) in [(1.0, "5/min", 2), (2.0, "2/min", 0), (3.0, "6/min", 1)] {
            gateway.reconfigure(&setup(&upstream, quota).text());
            if by_signal {
                gateway.signal("HUP");
            }
            wait_until("the reload", || reloads(&gateway, "ok") >= times);
            assert_eq!(allowed(&gateway), expected, "{quota}");
        }
        let output = gateway.output();
        assert!(output.contains("5/min") && output.contains("6/min"), "what changed: {output}");
    }
}

#[test]
fn a_bad_file_changes_nothing_and_is_reported() {
    let upstream = Upstream::simple();
    let gateway = setup(&upstream, "3/min").start();
    assert_eq!(allowed(&gateway), 3);
    for (times, bad) in [
        (1.0, "[gateway\n".to_owned()),
        (2.0, setup(&upstream, "9/min").key("unknwon", "1").text()),
        (3.0, setup(&upstream, "9/fortnight").text()),
    ] {
        gateway.reconfigure(&bad);
        gateway.signal("HUP");
        wait_until("the failure", || reloads(&gateway, "failed") >= times);
        assert_eq!(gateway.status("/"), 429, "as before");
    }
    let output = gateway.output();
    assert!(output.contains("unknwon") && output.contains("fortnight"), "{output}");
    assert_eq!(gateway.admin_page("/healthz").status(), 200);
    gateway.reconfigure(&setup(&upstream, "4/min").text());
    gateway.signal("HUP");
    wait_until("the reload", || reloads(&gateway, "ok") >= 1.0);
    assert_eq!(allowed(&gateway), 1);
}

#[test]
fn a_file_that_is_swapped_as_kubernetes_does_it_is_noticed() {
    let upstream = Upstream::simple();
    let options = options();
    let volume = options.directory().join("volume");
    let version = |name: &str, quota: &str| {
        let folder = volume.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("slidegate.toml"), setup(&upstream, quota).text()).unwrap();
    };
    let point = |to: &str| {
        let new = volume.join("..data_tmp");
        symlink(Path::new(to), &new).unwrap();
        fs::rename(&new, volume.join("..data")).unwrap();
    };
    version("..1", "3/min");
    point("..1");
    let file = volume.join("slidegate.toml");
    symlink("..data/slidegate.toml", &file).unwrap();
    let gateway = Gateway::from(options.configuration_file(&file).start());
    assert_eq!(allowed(&gateway), 3);
    for (times, name, quota, expected) in
        [(1.0, "..2", "5/min", 2), (2.0, "..3", "6/min", 1), (3.0, "..4", "8/min", 2)]
    {
        version(name, quota);
        point(name);
        wait_until("the reload", || reloads(&gateway, "ok") >= times);
        assert_eq!(allowed(&gateway), expected, "{quota}");
    }
}

#[test]
fn a_file_that_is_written_in_place_is_noticed() {
    let upstream = Upstream::simple();
    let gateway = setup(&upstream, "1/min").start();
    assert_eq!(allowed(&gateway), 1);
    fs::write(gateway.directory().join("slidegate.toml"), setup(&upstream, "3/min").text())
        .unwrap();
    wait_until("the reload", || reloads(&gateway, "ok") >= 1.0);
    assert_eq!(allowed(&gateway), 2);
}

#[test]
fn requests_under_way_and_connections_outlive_a_reload() {
    let [one, two] =
        ["one", "two"].map(|name| Upstream::answering(move |_| response("200 OK", "", name)));
    let gateway = configure(&one).start();
    let mut wire = gateway.wire();
    assert_eq!(wire.get("/", "").text(), "one");
    gateway.reconfigure(&configure(&two).text());
    gateway.signal("HUP");
    wait_until("the reload", || reloads(&gateway, "ok") >= 1.0);
    assert_eq!(wire.get("/", "").text(), "two", "other routes on the same connection");
}

#[test]
fn a_connection_that_stays_open_gets_the_new_headers_and_refusals() {
    let upstream = Upstream::simple();
    let few_words = "[headers]\ndialects = []\n[refusal]\nshape = \"bare\"";
    let gateway = setup(&upstream, "2/min").start();
    let mut wire = gateway.wire();
    assert_eq!(wire.get("/", "").value("x-ratelimit-remaining").as_deref(), Some("1"));
    gateway.reconfigure(&setup(&upstream, "2/min").tables(few_words).text());
    gateway.signal("HUP");
    wait_until("the reload", || reloads(&gateway, "ok") >= 1.0);
    let passed = wire.get("/", "");
    assert_eq!((passed.status(), passed.value("x-ratelimit-remaining")), (200, None));
    let refused = wire.get("/", "");
    assert_eq!((refused.status(), refused.text().as_str()), (429, "Too Many Requests"));
    gateway.reconfigure(&setup(&upstream, "2/min").text());
    gateway.signal("HUP");
    wait_until("the reload", || reloads(&gateway, "ok") >= 2.0);
    assert_eq!(wire.get("/", "").problem(), 429);
}

#[test]
fn reloading_under_load_costs_no_request_and_admits_none_too_many() {
    let upstream = Upstream::simple();
    let gateway = setup(&upstream, "200/min").start();
    let mut statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut wire = Wire::connect(gateway.listener());
                    (0..150).map(|_| wire.get("/", "").status()).collect::<Vec<u16>>()
                })
            })
            .collect();
        for round in 1..=5 {
            gateway.reconfigure(
                &setup(&upstream, "200/min").policy("extra", &format!("{round}000/min"), "").text(),
            );
            gateway.signal("HUP");
            wait_until("the reload", || reloads(&gateway, "ok") >= f64::from(round));
        }
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    statuses.sort_unstable();
    assert_eq!(statuses, [[200; 200].as_slice(), &[429; 400]].concat());
    assert_eq!(upstream.received().len(), 200);
}

#[test]
fn policies_that_would_share_keys_in_redis_are_not_put_in_force() {
    let (redis, upstream) = (RedisServer::start(), Upstream::simple());
    let store = |template: &str| {
        let url = redis.url();
        format!("[store]\nurl = {url:?}\nkey_template = {template:?}\ndeadline = \"2s\"")
    };
    let one =
        |template: &str| configure(&upstream).tables(&store(template)).policy("api", "2/min", "");
    let both = |template: &str| one(template).policy("login", "9/min", "");
    let gateway = one("rl:<identity>").start();
    assert_eq!(allowed(&gateway), 2);

    // In the file, and against the template in force, which a reload does not change.
    for (times, bad) in [(1.0, both("rl:<identity>")), (2.0, both("rl:<identity>:<policy>"))] {
        gateway.reconfigure(&bad.text());
        gateway.signal("HUP");
        wait_until("the failure", || reloads(&gateway, "failed") >= times);
        assert_eq!(gateway.status("/"), 429, "as before");
    }
    // Counted before it is logged.
    for said in ["would share Redis keys under the key template", "restart to apply it"] {
        wait_until(said, || gateway.output().contains(said));
    }
    assert_eq!(reloads(&gateway, "ok"), 0.0);
}
