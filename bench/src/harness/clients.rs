//! A thousand clients, played by `wrk`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::program::{Core, Directory};

/// How many clients take turns.
pub const CLIENTS: u32 = 1000;

/// Fails less often than wrk's own two seconds on a machine that is busy.
const TIMEOUT: &str = "10s";

/// What every client asks.
pub enum Ask {
    /// With the client's address in `X-Forwarded-For`.
    Get { path: &'static str },
    /// A POST with JSON in which `@` stands for the client's address.
    Post { path: &'static str, body: String },
}

/// What wrk saw.
pub struct Seen {
    pub answers: u64,
    pub took: Duration,
    pub p50: Duration,
    pub p99: Duration,
    /// Answers with a status of 400 and more.
    pub bad_statuses: u64,
    /// Connections and answers that came to nothing.
    pub broken: u64,
}

/// Sends requests as fast as they are answered.
pub struct Clients {
    script: PathBuf,
    connections: u32,
}

impl Clients {
    /// Clients that share so many connections; each carries one request at a time.
    pub fn new(directory: &Directory, connections: u32) -> anyhow::Result<Self> {
        let script = directory.write("clients.lua", include_str!("clients.lua"))?;
        Ok(Self { script, connections })
    }

    pub fn send(&self, port: u16, ask: &Ask, length: Duration) -> anyhow::Result<Seen> {
        let (Ask::Get { path } | Ask::Post { path, .. }) = ask;
        let mut wrk = Core::Rest.command("wrk");
        wrk.args(["--threads", "1", "--connections", &self.connections.to_string()]);
        wrk.args(["--timeout", TIMEOUT, "--duration", &format!("{}s", length.as_secs())]);
        wrk.arg("--script").arg(&self.script).arg(format!("http://127.0.0.1:{port}{path}"));
        match ask {
            Ask::Get { .. } => wrk.args(["--", "GET"]),
            Ask::Post { body, .. } => wrk.args(["--", "POST", body]),
        };
        let output = wrk.output().context("wrk cannot be run")?;
        let said = String::from_utf8_lossy(&output.stdout);
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{wrk:?} failed: {said}{complaint}");
        Seen::parse(&said).with_context(|| format!("wrk said: {said}{complaint}"))
    }
}

impl Seen {
    /// The line that the script writes.
    fn parse(said: &str) -> anyhow::Result<Self> {
        let line = said.lines().find_map(|line| line.strip_prefix("SEEN "));
        let numbers = line.context("no line of figures")?.split(' ').map(str::parse);
        let numbers = numbers.collect::<Result<Vec<u64>, _>>()?;
        let [answers, took_us, p50_us, p99_us, bad_statuses, broken] = numbers[..] else {
            bail!("{} figures", numbers.len());
        };
        Ok(Self {
            answers,
            took: Duration::from_micros(took_us),
            p50: Duration::from_micros(p50_us),
            p99: Duration::from_micros(p99_us),
            bad_statuses,
            broken,
        })
    }
}
