//! Metrics of the process.

use std::{fmt, fs};

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use slidegate::Timestamp;

use super::page::Page;
use crate::logs;

pub(super) fn encode(started: Timestamp, page: &mut Page<'_>) -> fmt::Result {
    let version = Info::new([("version", env!("CARGO_PKG_VERSION"))]);
    page.metric("slidegate_build", "The running version.", &version)?;
    let dropped = ConstCounter::new(logs::dropped_lines());
    let help = "Log lines dropped because standard error was too slow.";
    page.metric("slidegate_log_dropped", help, &dropped)?;
    let started = ConstGauge::new(started.as_millis() as f64 / 1000.0);
    let help = "When the process started, in Unix time.";
    page.metric("process_start_time_seconds", help, &started)?;
    if let Some(seconds) = cpu_seconds() {
        let help = "User and system CPU time spent.";
        page.metric("process_cpu_seconds", help, &ConstCounter::new(seconds))?;
    }
    if let Some(bytes) = resident_bytes() {
        let help = "Memory that the process has in RAM.";
        page.metric("process_resident_memory_bytes", help, &ConstGauge::new(bytes as f64))?;
    }
    if let Some(fds) = open_fds() {
        let help = "Open file descriptors.";
        page.metric("process_open_fds", help, &ConstGauge::new(fds as f64))?;
    }
    Ok(())
}

// Each is None where the kernel is not Linux.

/// The kernel counts 100 ticks a second for processes, whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The second field, the command's name, is in parentheses and may have anything in it.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    Some((user + system) as f64 / TICKS_PER_SECOND)
}

fn resident_bytes() -> Option<u64> {
    // Not `statm`, which counts pages of a size that only an unsafe call would tell.
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = resident.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

fn open_fds() -> Option<usize> {
    // One of them is for reading the directory.
    fs::read_dir("/proc/self/fd").ok()?.count().checked_sub(1)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn what_the_kernel_counts_is_read() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        let files: Vec<File> = (0..50).map(|_| File::open("/dev/null").unwrap()).collect();
        assert!(open_fds().unwrap() > files.len());
        let before = cpu_seconds().unwrap();
        assert!((0..1_000_000).any(|_| cpu_seconds().unwrap() > before), "reading costs time too");
    }
}
