//! Redis clients as people have them: redis-cli, redis-py and node-redis.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use slidegate_testbed::Slidegate;
use slidegate_testbed::program::run;

const REDIS_CLI: &str = "apt-get install --yes --no-install-recommends redis-tools";
const TOKEN: &str = "hunter2";

fn slidegate() -> Slidegate {
    let jobs = "[[policy]]\nname = \"jobs\"\nidentity = [\"user\"]\nquotas = [\"5/min\"]\n";
    let listen = "listen = \"127.0.0.1:0\"\n";
    let text = format!("[resp]\n{listen}[admin]\n{listen}{jobs}");
    let options = Slidegate::options(env!("CARGO_BIN_EXE_slidegate"));
    options.variable("SLIDEGATE_RESP_TOKEN", TOKEN).configuration(&text).start()
}

/// What `scripts/tools` has installed.
fn tools(directory: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_slidegate")).ancestors().nth(2).unwrap();
    let tools = target.join(directory);
    assert!(tools.is_dir(), "{} is missing; run: scripts/tools", tools.display());
    tools
}

/// Runs a client's own checks, with the address of Slidegate.
fn check(command: &mut Command, install: &str, address: SocketAddr) {
    command.env("PORT", address.port().to_string()).env("TOKEN", TOKEN);
    let output = run(command, install);
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forward_auth").join(name)
}

#[test]
fn redis_cli_asks_for_decisions_in_both_versions_of_the_protocol() {
    let slidegate = slidegate();
    let port = slidegate.address("resp").port().to_string();
    for (version, key) in [("-2", "two"), ("-3", "three")] {
        let ask = |token: &str, command: &str| {
            let mut cli = Command::new("redis-cli");
            cli.args([version, "-p", &port, "--no-auth-warning", "-a", token]);
            let output = run(cli.args(command.split(' ')), REDIS_CLI);
            String::from_utf8(output.stdout).unwrap().trim_end().replace('\n', " ")
        };
        let ask_all = |commands: &[(&str, &str)]| {
            for (command, reply) in commands {
                let command = command.replace('@', key);
                assert_eq!(ask(TOKEN, &command), *reply, "{version} {command}");
            }
        };
        ask_all(&[
            ("PING", "PONG"),
            ("CL.THROTTLE @ 1 2 60", "0 2 1 -1 60"),
            ("CL.THROTTLE @ 1 2 60", "0 2 0 -1 60"),
            ("CL.THROTTLE @ 1 2 60 0", "0 2 0 -1 60"),
            ("THROTTLE crab-@ 2 2 60", "1 2 1 60 0"),
            ("SLIDEGATE.SPEND jobs user:@ COST 6", "0 0 0 -1 -1"),
            ("SLIDEGATE.PEEK jobs user:@", "1 5 5 0 0"),
            ("SLIDEGATE.RESET jobs user:@", "0"),
            ("SLIDEGATE.RESET throttle throttle:60s:@", "1"),
            ("CL.THROTTLE @ 1 2 60 2", "0 2 0 -1 60"),
            ("CLIENT SETNAME me", "OK"),
            ("QUIT", "OK"),
        ]);
        let held = ask(TOKEN, &format!("SLIDEGATE.HOLD jobs user:{key} UNITS 3"));
        let (standing, id) = held.rsplit_once(' ').unwrap();
        assert!(standing.starts_with("1 5 2 0 "), "{held}");
        for (units, reply) in [("4", "1"), ("0", "0")] {
            assert_eq!(ask(TOKEN, &format!("SLIDEGATE.SETTLE {id} {units}")), reply, "{held}");
        }
        let left = ask(TOKEN, &format!("SLIDEGATE.PEEK jobs user:{key}"));
        assert!(left.starts_with("1 5 1 0 "), "{left}");
        let recorded = ask(TOKEN, &format!("SLIDEGATE.RECORD jobs user:{key} 70"));
        assert!(recorded.starts_with("0 5 0 "), "{recorded}");
        let denied = ask(TOKEN, &format!("CL.THROTTLE {key} 1 2 60"));
        assert!(denied.starts_with("1 2 0 6"), "{denied}");
        let unknown = ask(TOKEN, "INCR x");
        assert!(unknown.contains("unknown command 'INCR'") && unknown.contains("CL.THROTTLE"));
        assert!(ask("hunter", "PING").contains("NOAUTH"), "a wrong token is no token");
    }
}

#[test]
fn redis_py_asks_for_decisions() {
    let slidegate = slidegate();
    let mut python = Command::new("python3");
    python.arg(script("redis_clients.py")).env("PYTHONPATH", tools("tools"));
    let install = "apt-get install --yes --no-install-recommends python3";
    check(&mut python, install, slidegate.address("resp"));
}

#[test]
fn node_redis_asks_for_decisions() {
    let slidegate = slidegate();
    let mut node = Command::new("node");
    node.arg(script("redis_clients.cjs")).env("NODE_PATH", tools("node-tools/node_modules"));
    let install = "apt-get install --yes --no-install-recommends nodejs";
    check(&mut node, install, slidegate.address("resp"));
}
