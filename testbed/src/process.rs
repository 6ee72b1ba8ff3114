//! A child process that ends with its owner, however the owner ends.

use std::fs;
use std::process::{Child, Command, Output, Stdio};

use crate::directory::Directory;

/// Linux reports processor time to user space in hundredths of a second on every architecture.
const TICKS_PER_SECOND: f64 = 100.0;

/// A running process, killed on drop.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    watchdog: Child,
}

impl Process {
    /// Starts the command in the directory. If it is not installed, the panic says how to.
    pub(crate) fn spawn(command: &mut Command, install: &str, directory: &Directory) -> Self {
        command.current_dir(directory.path()).stdin(Stdio::null());
        let child =
            command.spawn().unwrap_or_else(|error| panic!("{}", missing(command, install, &error)));
        let watchdog = watchdog(child.id(), directory);
        Self { child, watchdog }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The exit code once it has ended by itself; none within, if a signal ended it.
    pub(crate) fn exit_code(&mut self) -> Option<Option<i32>> {
        let status = self.child.try_wait().expect("it is a child of ours");
        status.map(|status| status.code())
    }

    /// Sends the named signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        // The shell's own `kill`: the program of that name is not on every machine.
        let mut kill = Command::new("sh");
        output(kill.args(["-c", "kill -s \"$0\" \"$1\"", name, &pid]), "a POSIX shell");
    }

    /// Whether a signal has stopped it.
    pub(crate) fn is_stopped(&self) -> bool {
        self.status().first().is_some_and(|state| state == "T")
    }

    /// The time that the process has spent on a processor, to a hundredth of a second.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        let status = self.status();
        let ticks = status[UTIME..=STIME].iter();
        let ticks = ticks.map(|field| field.parse::<f64>().expect("a number of ticks"));
        ticks.sum::<f64>() / TICKS_PER_SECOND
    }

    /// The fields of `/proc/<pid>/stat` after the name in brackets, which may itself hold blanks.
    fn status(&self) -> Vec<String> {
        let path = format!("/proc/{}/stat", self.pid());
        let stat = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let (_, after_name) = stat.rsplit_once(')').expect("the name is in brackets");
        after_name.split_whitespace().map(str::to_owned).collect()
    }
}

/// Places in [`Process::status`].
const UTIME: usize = 11;
const STIME: usize = 12;

impl Drop for Process {
    fn drop(&mut self) {
        // The watchdog first: once the process is reaped, its id may belong to another.
        for child in [&mut self.watchdog, &mut self.child] {
            // Both fail only if the process has already ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs a command to its end. If it is missing or fails, the panic says why.
pub(crate) fn output(command: &mut Command, install: &str) -> Output {
    let output =
        command.output().unwrap_or_else(|error| panic!("{}", missing(command, install, &error)));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?} failed: {complaint}");
    output
}

pub(crate) fn missing(command: &Command, install: &str, error: &std::io::Error) -> String {
    format!("cannot run {}: {error}; install it: {install}", command.get_program().display())
}

/// Ends the process and removes its directory when we end without dropping it: killed, aborted, or
/// with the process in a static. It notices by the end of its standard input.
fn watchdog(pid: u32, directory: &Directory) -> Child {
    Command::new("sh")
        .args(["-c", "read -r _; kill -s KILL \"$0\"; rm -rf \"$1\"", &pid.to_string()])
        .arg(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("a POSIX shell")
}
