//! One `prometheus` process.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use crate::directory::Directory;
use crate::process::Process;
use crate::wait::wait_for;

/// A `prometheus` process with a directory of its own, both gone on drop.
#[derive(Debug)]
pub struct Prometheus {
    _process: Process,
    address: SocketAddr,
    // Last, because fields are dropped in this order and the process still writes to it.
    _directory: Directory,
}

impl Prometheus {
    /// Starts with the text of a `prometheus.yml` and returns when it answers queries.
    #[must_use]
    pub fn start(configuration: &str) -> Self {
        let directory = Directory::new();
        directory.write("prometheus.yml", configuration);
        let log = File::create(directory.file(LOG)).expect("it is writable");
        let mut command = Command::new("prometheus");
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.arg("--web.listen-address=127.0.0.1:0").stdout(Stdio::null()).stderr(log);
        let install = "apt-get install prometheus";
        let mut process = Process::spawn(&mut command, install, &directory);
        let address = wait_for("prometheus to be ready", || {
            let log = fs::read_to_string(directory.file(LOG)).unwrap_or_default();
            assert!(process.is_running(), "it ended:\n{log}");
            log.contains("Server is ready").then(|| listening(&log))?
        });
        Self { _process: process, address, _directory: directory }
    }

    /// Where its API is.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The address in the line that the web server logs once it has a port.
fn listening(log: &str) -> Option<SocketAddr> {
    let line = log.lines().find(|line| line.contains("msg=\"Listening on\""))?;
    let (_, address) = line.split_once("address=")?;
    address.trim().parse().ok()
}

const LOG: &str = "log";
