//! One `slidegate serve` process.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::directory::Directory;
use crate::process::Process;
use crate::tls::Certificates;
use crate::wait::wait_for;

/// A `slidegate serve` process with a directory of its own, both gone on drop.
#[derive(Debug)]
pub struct Slidegate {
    process: Mutex<Process>,
    // Last, because fields are dropped in this order and the process still writes to it.
    directory: Directory,
}

/// A directory in which a [`Slidegate`] is to live.
#[derive(Debug)]
pub struct SlidegateOptions {
    program: PathBuf,
    arguments: Vec<String>,
    variables: Vec<(String, String)>,
    directory: Directory,
}

impl Slidegate {
    /// What a process of the given program is to be told.
    #[must_use]
    pub fn options(program: impl AsRef<Path>) -> SlidegateOptions {
        SlidegateOptions {
            program: program.as_ref().to_owned(),
            arguments: vec!["serve".to_owned()],
            variables: Vec::new(),
            directory: Directory::new(),
        }
    }

    /// Starts with this configuration and returns when it serves.
    #[must_use]
    pub fn start(program: impl AsRef<Path>, configuration: &str) -> Self {
        Self::options(program).configuration(configuration).start()
    }

    /// Where the gateway's first TCP listener is.
    #[must_use]
    pub fn gateway(&self) -> SocketAddr {
        self.address("gateway")
    }

    /// Where metrics and health are.
    #[must_use]
    pub fn admin(&self) -> SocketAddr {
        self.address("admin")
    }

    /// The first address of an endpoint: `gateway`, `decisions`, `resp`, `rls` or `admin`.
    #[must_use]
    pub fn address(&self, endpoint: &str) -> SocketAddr {
        self.announced(endpoint)
            .unwrap_or_else(|| panic!("no address of {endpoint} in:\n{}", self.output()))
    }

    /// All that it has written, to standard output and standard error.
    #[must_use]
    pub fn output(&self) -> String {
        [OUTPUT, ERRORS].map(|name| self.read(name)).concat()
    }

    /// Its files are here, and relative paths begin here.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Puts another text in the configuration file's place, in one step.
    pub fn reconfigure(&self, configuration: &str) {
        let new = self.directory.write("new.toml", configuration);
        fs::rename(new, self.directory.file(CONFIGURATION)).expect("the directory is writable");
    }

    /// Sends the named signal, such as `HUP`.
    pub fn signal(&self, name: &str) {
        self.process().signal(name);
    }

    /// The id of the process.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().pid()
    }

    /// Whether the process has not ended.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process().is_running()
    }

    /// Waits until it has ended by itself, and returns its exit code; none if a signal ended it.
    #[must_use]
    pub fn wait(&self) -> Option<i32> {
        wait_for("slidegate to end", || self.process().exit_code())
    }

    /// The memory that it has now, in KiB.
    #[must_use]
    pub fn rss_kib(&self) -> u64 {
        self.memory("VmRSS:")
    }

    /// The most memory that it has had, in KiB.
    #[must_use]
    pub fn peak_rss_kib(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// The processor time that it has used, to a hundredth of a second.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        self.process().cpu_seconds()
    }

    fn memory(&self, field: &str) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let value = status.lines().find_map(|line| line.strip_prefix(field)).expect("the field");
        value.trim().trim_end_matches(" kB").parse().expect("a number")
    }

    /// The address in the log line that has those of all endpoints, as JSON or as text.
    fn announced(&self, endpoint: &str) -> Option<SocketAddr> {
        let text = self.output();
        // The last line may not be complete yet.
        let mut lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let line = lines.find(|line| line.contains("listening"))?;
        let starts = [format!("\"{endpoint}\":\""), format!(" {endpoint}=\"")];
        let (_, rest) = starts.iter().find_map(|start| line.split_once(start))?;
        let list = rest.split('"').next()?;
        list.split(", ").find_map(|address| address.parse().ok())
    }

    fn read(&self, name: &str) -> String {
        fs::read(self.directory.file(name))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SlidegateOptions {
    /// The text of its configuration file.
    #[must_use]
    pub fn configuration(self, text: &str) -> Self {
        let path = self.directory.write(CONFIGURATION, text);
        self.configuration_file(&path)
    }

    /// Another configuration file than its own.
    #[must_use]
    pub fn configuration_file(self, path: &Path) -> Self {
        self.argument("--config").argument(&path.to_string_lossy())
    }

    /// One more word on the command line.
    #[must_use]
    pub fn argument(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// One more variable in its environment.
    #[must_use]
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Runs lines of a POSIX shell before it, such as `ulimit -n 200`, in the same process.
    #[must_use]
    pub fn after(mut self, lines: &str) -> Self {
        let program = std::mem::replace(&mut self.program, "sh".into());
        let script = format!("{lines}\nexec \"$0\" \"$@\"");
        let start = ["-c".to_owned(), script, program.to_string_lossy().into_owned()];
        self.arguments.splice(0..0, start);
        self
    }

    /// The directory in which it will be.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Certificates for it, in its directory.
    #[must_use]
    pub fn certificates(&self) -> Certificates {
        Certificates::generate(&self.directory)
    }

    /// Starts it, and returns when it has logged its addresses.
    #[must_use]
    pub fn start(self) -> Slidegate {
        let slidegate = self.spawn();
        wait_for("slidegate to serve", || {
            let ready = slidegate.announced("admin").is_some();
            assert!(ready || slidegate.is_running(), "it ended:\n{}", slidegate.output());
            ready.then_some(())
        });
        slidegate
    }

    /// Starts it and does not wait.
    #[must_use]
    pub fn spawn(self) -> Slidegate {
        let file = |name| File::create(self.directory.file(name)).expect("it is writable");
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).stdout(file(OUTPUT)).stderr(file(ERRORS));
        for name in AMBIENT {
            command.env_remove(name);
        }
        command.envs(self.variables);
        let process = Process::spawn(&mut command, "cargo build", &self.directory);
        Slidegate { process: Mutex::new(process), directory: self.directory }
    }
}

/// Variables that would change what is tested, if they are set where the tests run.
const AMBIENT: [&str; 8] = [
    "NOTIFY_SOCKET",
    "RATE_LIMIT_ENABLED",
    "RATE_LIMIT_MAX",
    "RATE_LIMIT_POLICY",
    "RATE_LIMIT_TTL",
    "RATE_LIMIT_WINDOW_MS",
    "REDIS_URL",
    "WATCHDOG_USEC",
];

const CONFIGURATION: &str = "slidegate.toml";
const OUTPUT: &str = "output";
const ERRORS: &str = "errors";
