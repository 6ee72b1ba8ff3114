//! Files that a configuration names and that are none: pipes, devices, files without an end.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use slidegate_testbed::{Gateway, SlidegateOptions, Upstream, assert_no_hang, wait_until};

use crate::options;

/// Puts something in the place of a file.
type Spoil = fn(&Path);

/// What may be in the place of a file, and what errors call it.
const SPOILED: [(&str, Spoil, &str); 3] = [
    ("pipe", pipe, "it is a pipe: expected a regular file"),
    ("device", device, "it is a device: expected a regular file"),
    ("3 GiB", sparse, "it is too large: expected at most"),
];

/// Less than the deadline of a load: a file that is none is refused at once.
const AT_ONCE: Duration = Duration::from_secs(15);

/// Many times what such a server has, and a fraction of what the files would take.
const MAX_RSS_KIB: u64 = 200 * 1024;

fn pipe(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

fn device(path: &Path) {
    symlink("/dev/zero", path).unwrap();
}

fn sparse(path: &Path) {
    File::create(path).unwrap().set_len(3 << 30).unwrap();
}

fn replace(path: &Path, spoil: Spoil) {
    let _ = fs::remove_file(path);
    spoil(path);
}

/// Every file that a configuration can name: the file, and the lines that name it, `@` being the
/// directory.
const NAMED: [(&str, &str); 12] = [
    ("keys.csv", "keys_file = '@/keys.csv'"),
    ("keys.toml", "keys_file = '@/keys.toml'"),
    ("key", "[[api_key]]\nkey_file = '@/key'\nplan = 'free'"),
    ("token", "[admin]\nlisten = '127.0.0.1:0'\ntoken_file = '@/token'"),
    ("token", "[decisions]\nlisten = '127.0.0.1:0'\ntoken_file = '@/token'"),
    ("token", "[resp]\nlisten = '127.0.0.1:0'\ntoken_file = '@/token'"),
    ("token", "[rls]\nlisten = '127.0.0.1:0'\ntoken_file = '@/token'"),
    ("spoiled", "gateway.tls = { certificate = '@/spoiled', key = '@/server.key' }"),
    ("spoiled", "gateway.tls = { certificate = '@/server.crt', key = '@/spoiled' }"),
    (
        "spoiled",
        "gateway.tls = { certificate = '@/server.crt', key = '@/server.key', client_ca = '@/spoiled' }",
    ),
    ("spoiled", "store = { url = 'rediss://127.0.0.1:1', ca = '@/spoiled' }"),
    (
        "spoiled",
        "store = { url = 'rediss://127.0.0.1:1', certificate = '@/server.crt', key = '@/spoiled' }",
    ),
];

/// A directory with certificates.
struct Files(SlidegateOptions);

impl Files {
    fn new() -> Self {
        let files = Self(options());
        let certificates = files.0.certificates();
        assert_eq!(certificates.server, files.path("server.crt"));
        assert_eq!(certificates.server_key, files.path("server.key"));
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.directory().join(name)
    }
}

fn configuration(files: &Files, lines: &str) -> String {
    let lines = lines.replace('@', files.0.directory().to_str().unwrap());
    let admin = if lines.contains("[admin]") { "" } else { "admin.listen = '127.0.0.1:0'\n" };
    let gateway = "gateway.upstream = 'http://127.0.0.1:1'\ngateway.listen = '127.0.0.1:0'\n";
    // Dotted keys come first, tables last.
    format!("{gateway}{admin}plans.free.quotas = ['5/min']\n{lines}\n")
}

/// What a command says that is to fail, and soon.
fn failure(arguments: &[&str]) -> String {
    let began = Instant::now();
    let mut command = Command::new("timeout");
    let command = command.args(["60", env!("CARGO_BIN_EXE_slidegate")]).args(arguments);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    assert_no_hang(began, AT_ONCE);
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn what_is_no_file_is_a_clear_error_of_check_and_serve() {
    let files = Files::new();
    let config = files.path("slidegate.toml");
    let config = config.to_str().unwrap();
    for (kind, spoil, expected) in SPOILED {
        for (name, lines) in NAMED {
            replace(&files.path(name), spoil);
            fs::write(config, configuration(&files, lines)).unwrap();
            for command in ["check", "serve"] {
                let printed = failure(&[command, "--config", config]);
                assert!(printed.contains(expected), "{command}, {kind}, {lines}: {printed}");
            }
            fs::remove_file(files.path(name)).unwrap();
        }
        replace(config.as_ref(), spoil);
        for command in ["check", "serve"] {
            let printed = failure(&[command, "--config", config]);
            assert!(printed.contains(expected), "{command}, {kind}: {printed}");
        }
        fs::remove_file(config).unwrap();
    }
}

#[test]
fn what_is_no_snapshot_keeps_the_server_from_starting() {
    let files = Files::new();
    let config = files.path("slidegate.toml");
    fs::write(&config, configuration(&files, "store.snapshot.file = '@/snapshot'")).unwrap();
    for (kind, spoil, expected) in SPOILED {
        for name in ["snapshot", "snapshot.local", "snapshot.bans", "snapshot.overrides"] {
            let path = files.path(name);
            replace(&path, spoil);
            let printed = failure(&["serve", "--config", config.to_str().unwrap()]);
            // Accounts are read as they come, up to what the store has room for.
            let is_stream = kind == "3 GiB" && (name == "snapshot" || name == "snapshot.local");
            let expected = if is_stream { "cannot restore" } else { expected };
            assert!(
                printed.contains(expected) && printed.contains(name),
                "{kind}, {name}: {printed}"
            );
            fs::remove_file(path).unwrap();
        }
    }
}

fn failures(gateway: &Gateway) -> f64 {
    gateway.metric("slidegate_config_reloads_total", "failed")
}

/// The server is alive, and small.
fn check_alive(gateway: &Gateway, what: &str) {
    assert_eq!(gateway.admin_page("/healthz").status(), 200, "{what}");
    assert_eq!(gateway.admin_page("/readyz").status(), 200, "{what}");
    assert!(gateway.peak_rss_kib() < MAX_RSS_KIB, "{what}: {} KiB", gateway.peak_rss_kib());
}

#[test]
fn a_reload_that_meets_what_is_no_file_is_reported_and_holds_nothing_up() {
    let (upstream, files) = (Upstream::simple(), Files::new());
    let good = configuration(&files, "").replace("http://127.0.0.1:1", &upstream.url());
    for (kind, spoil, expected) in SPOILED {
        let gateway = Gateway::from(options().configuration(&good).start());
        let mut failed = 0.0;
        // Certificates are read when the server starts, and those of the gateway at a signal.
        let is_reloaded = |(name, _): &(&str, &str)| *name != "spoiled";
        for (name, lines) in NAMED.into_iter().filter(is_reloaded) {
            replace(&files.path(name), spoil);
            gateway.reconfigure(&configuration(&files, lines));
            gateway.signal("HUP");
            wait_until(&format!("the failure of {kind}, {lines}"), || failures(&gateway) > failed);
            failed = failures(&gateway);
            wait_until("the log", || gateway.output().contains(expected));
            check_alive(&gateway, lines);
            fs::remove_file(files.path(name)).unwrap();
        }
        // The configuration itself, which the watcher notices without a signal.
        let config = gateway.directory().join("slidegate.toml");
        replace(&config, spoil);
        wait_until("the failure of the file itself", || failures(&gateway) > failed);
        check_alive(&gateway, kind);
        fs::remove_file(&config).unwrap();
        gateway.reconfigure(&good.replace("5/min", "6/min"));
        gateway.signal("HUP");
        let reloaded = || gateway.metric("slidegate_config_reloads_total", "ok") >= 1.0;
        wait_until("a good configuration", reloaded);
        replace(&config, spoil);
        gateway.signal("TERM");
        assert_eq!(gateway.wait(), Some(0), "{kind}");
    }
}

#[test]
fn a_certificate_that_is_none_leaves_the_one_in_force() {
    let (upstream, files) = (Upstream::simple(), Files::new());
    let tls = "gateway.tls = { certificate = '@/server.crt', key = '@/server.key' }";
    let text = configuration(&files, tls).replace("http://127.0.0.1:1", &upstream.url());
    for (kind, spoil, expected) in SPOILED {
        let good = fs::read(files.path("server.crt")).unwrap();
        let gateway = Gateway::from(options().configuration(&text).start());
        replace(&files.path("server.crt"), spoil);
        gateway.signal("HUP");
        let message = "certificate reload failed; keeping the previous one";
        wait_until("the failure", || {
            let output = gateway.output();
            output.contains(message) && output.contains(expected)
        });
        check_alive(&gateway, kind);
        gateway.signal("TERM");
        assert_eq!(gateway.wait(), Some(0), "{kind}");
        fs::remove_file(files.path("server.crt")).unwrap();
        fs::write(files.path("server.crt"), good).unwrap();
    }
}

#[test]
fn a_file_that_changes_while_it_is_read_is_never_put_in_force() {
    let (upstream, files) = (Upstream::simple(), Files::new());
    let keys = files.path("keys.csv");
    // Long enough to be written to while it is read.
    let text = format!("key,plan\nk-1,free\n{}", "# padding\n".repeat(400_000));
    fs::write(&keys, &text).unwrap();
    let config = configuration(&files, "keys_file = '@/keys.csv'");
    let config = config.replace("http://127.0.0.1:1", &upstream.url());
    let gateway = Gateway::from(options().configuration(&config).start());
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut file = OpenOptions::new().append(true).open(&keys).unwrap();
            while !over.load(Ordering::Relaxed) {
                file.write_all(b"#\n").unwrap();
            }
        });
        let message = "it changes while it is read";
        wait_until("the failure", || {
            gateway.signal("HUP");
            check_alive(&gateway, "written in place");
            gateway.output().contains(message)
        });
        over.store(true, Ordering::Relaxed);
    });
    assert!(failures(&gateway) >= 1.0);
    // Once it is at rest, it is read without a signal.
    fs::write(&keys, text + "k-2,free\nk-3,free\n").unwrap();
    wait_until("the reload", || gateway.output().contains("API keys added: 2"));
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
}
