//! What there is to know of the process.

use std::{fmt, fs};

use slidegate::Timestamp;

use super::exposition::Page;
use crate::logs;

pub(super) fn expose(started: Timestamp, page: &mut Page<'_>) -> fmt::Result {
    page.info(
        "slidegate_build",
        "The running version.",
        &[("version", env!("CARGO_PKG_VERSION"))],
    )?;
    page.counter(
        "slidegate_log_dropped",
        "Log lines dropped because standard error was too slow.",
        logs::dropped_lines(),
    )?;
    page.gauge(
        "process_start_time_seconds",
        "When the process started, in Unix time.",
        started.as_millis() as f64 / 1000.0,
    )?;
    resident_bytes().map_or(Ok(()), |bytes| {
        page.gauge(
            "process_resident_memory_bytes",
            "Memory that the process has in RAM.",
            bytes as f64,
        )
    })
}

/// None where the kernel is not Linux.
fn resident_bytes() -> Option<u64> {
    // Not `statm`, which counts pages of a size that only an unsafe call would tell.
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = resident.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_test_takes_more_than_a_megabyte() {
        assert!(resident_bytes().unwrap() > 1 << 20);
    }
}
