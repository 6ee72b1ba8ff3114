//! Programs on a processor of their own, which end with the benchmark.

use std::env;
use std::fmt;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

/// A processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Core {
    /// For the server whose turn it is, and nothing else.
    Tested,
    /// For everything that the server works with: the clients, the upstream, Redis.
    Rest,
    /// Both, for a server with two workers, which shares them with the rest.
    Both,
}

impl Core {
    /// A command that runs there, and is ended by the kernel if this process ends before it.
    pub fn command(self, program: impl AsRef<Path>) -> Command {
        // Each of the two becomes the next, so that the process that is started is the program's.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "TERM", "taskset", "--cpu-list", self.number()]);
        command.arg(program.as_ref()).stdin(Stdio::null());
        command
    }

    /// Moves a process that runs already.
    pub fn take(self, pid: u32) -> anyhow::Result<()> {
        let mut taskset = Command::new("taskset");
        taskset.args(["--all-tasks", "--cpu-list", "--pid", self.number(), &pid.to_string()]);
        let output = taskset.output().context("taskset cannot be run")?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "taskset failed: {complaint}");
        Ok(())
    }

    fn number(self) -> &'static str {
        match self {
            Self::Tested => "0",
            Self::Rest => "1",
            Self::Both => "0,1",
        }
    }
}

/// A running server, ended on drop.
pub struct Program {
    child: Child,
}

/// What a program has used so far.
pub struct Usage {
    pub cpu: Duration,
    pub rss_bytes: u64,
}

const START_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE_BETWEEN_LOOKS: Duration = Duration::from_millis(10);

/// Linux reports processor time to user space in hundredths of a second on every architecture.
const TICK: Duration = Duration::from_millis(10);

impl Program {
    /// Starts a command and returns when something accepts connections on the port.
    pub fn start(command: &mut Command, port: u16, directory: &Directory) -> anyhow::Result<Self> {
        let (log, path) = directory.create(&format!("{port}.log"))?;
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let mut program = Self { child };
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            if program.has_ended() || Instant::now() > deadline {
                let said = fs::read_to_string(path).unwrap_or_default();
                bail!("no program listens on port {port} after {command:?}\n{said}");
            }
            thread::sleep(PAUSE_BETWEEN_LOOKS);
        }
        Ok(program)
    }

    /// What the process and its children have used.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
        let children = children.split_whitespace().map(str::parse);
        let pids = [Ok(pid)].into_iter().chain(children).collect::<Result<Vec<u32>, _>>()?;
        let mut sum = Usage { cpu: Duration::ZERO, rss_bytes: 0 };
        for pid in pids {
            sum.cpu += cpu(pid)?;
            sum.rss_bytes += rss_bytes(pid)?;
        }
        Ok(sum)
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Not killed at once: nginx would leave its worker behind. All of this fails only if the
        // process has already ended.
        let pid = self.child.id().to_string();
        let _ = Command::new("sh").args(["-c", "kill \"$0\"", &pid]).status();
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.has_ended() && Instant::now() < deadline {
            thread::sleep(PAUSE_BETWEEN_LOOKS);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The processor time that a process has used so far.
pub fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may itself hold blanks.
    let (_, after_name) = stat.rsplit_once(')').context("the name is in brackets")?;
    let (utime, stime) = (11, 12);
    let ticks = after_name.split_whitespace().skip(utime).take(stime - utime + 1);
    let ticks = ticks.map(str::parse::<u32>).sum::<Result<u32, _>>()?;
    Ok(TICK * ticks)
}

fn rss_bytes(pid: u32) -> anyhow::Result<u64> {
    memory_bytes(pid, "VmRSS:")
}

/// The most memory that a process has had so far.
pub fn peak_rss_bytes(pid: u32) -> anyhow::Result<u64> {
    memory_bytes(pid, "VmHWM:")
}

fn memory_bytes(pid: u32, name: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.with_context(|| format!("a process has {name}"))?.parse::<u64>()? * 1024)
}

/// A port that is free at this moment.
pub fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// Fails unless the programs are installed and there are the processors for them.
pub fn require(programs: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = programs.iter().filter(|name| !find(name).is_file()).copied().collect();
    ensure!(missing.is_empty(), "missing: {}; ./scripts/bench installs them", missing.join(", "));
    let processors = thread::available_parallelism()?.get();
    ensure!(processors > 1, "two processors are needed, one of them for the server in its turn");
    Ok(())
}

/// Where the program of this name is. Not every user's path has the directory of servers; nor the
/// one of peers that were built beside us.
pub fn find(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let peers = peers_directory().map(|directory| directory.join("bin"));
    let others = [PathBuf::from("/usr/sbin")].into_iter().chain(peers);
    let directories = env::split_paths(&path).chain(others);
    let found = directories.map(|directory| directory.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| PathBuf::from(name))
}

/// The server as it is now: built in our own profile, if cargo runs us, and beside us.
pub fn slidegate() -> anyhow::Result<PathBuf> {
    let path = env::current_exe()?.with_file_name("slidegate");
    if let Some(cargo) = env::var_os("CARGO") {
        let directory = path.parent().and_then(Path::file_name).context("we are in a directory")?;
        // The profile whose directory has another name.
        let profile = if directory == "debug" { "dev".as_ref() } else { directory };
        let build = Command::new(cargo)
            .args(["build", "--package", "slidegate-server", "--profile"])
            .arg(profile)
            .status()
            .context("cargo cannot be run")?;
        ensure!(build.success(), "the server cannot be built");
    }
    ensure!(path.is_file(), "{} is missing; run with cargo or ./scripts/bench", path.display());
    Ok(path)
}

/// Where `./scripts/bench` puts peers that are no packages of the system.
pub fn peers_directory() -> Option<PathBuf> {
    Some(env::current_exe().ok()?.parent()?.with_file_name("peers"))
}

/// The template with a value for every `@NAME@`.
pub fn fill(template: &str, blanks: &[(&str, String)]) -> String {
    blanks
        .iter()
        .fold(template.to_owned(), |text, (name, value)| text.replace(&format!("@{name}@"), value))
}

/// An empty directory that disappears with its owner.
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    pub fn new() -> anyhow::Result<Self> {
        let path = env::temp_dir().join(format!("slidegate-bench-{}", process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self { path })
    }

    fn create(&self, name: &str) -> anyhow::Result<(File, PathBuf)> {
        let path = self.path.join(name);
        let file = File::create(&path);
        Ok((file.with_context(|| format!("cannot write {}", path.display()))?, path))
    }

    /// Where a file of this name is to be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn write(&self, name: &str, contents: &str) -> anyhow::Result<PathBuf> {
        let path = self.path.join(name);
        fs::write(&path, contents).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

impl fmt::Display for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A failure only leaves a directory behind.
        let _ = fs::remove_dir_all(&self.path);
    }
}
