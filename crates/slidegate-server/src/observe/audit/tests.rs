//! Trails that are read again.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU32;

use serde_json::Value;

use super::*;
use crate::logs::MAX_QUEUED_LINES;
use crate::observe::OperationOutcome;

/// An empty directory, gone on drop.
struct TempDir(PathBuf);

impl TempDir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("slidegate-audit-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("audit.jsonl")
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn config(file: PathBuf) -> AuditConfig {
    AuditConfig { file, every_decision: false, rotate_bytes: 4096, keep: 2 }
}

const STOP: AuditEvent<'_> = AuditEvent::Stop {};

impl Trail {
    fn record_reload(&self, change: &str) {
        let changes = &[change.to_owned()][..];
        let (changes, in_force) = (Some(changes), Vec::new());
        let outcome = OperationOutcome::Done;
        let event = AuditEvent::Reload { outcome, changes, problems: None, in_force };
        self.record(Timestamp::default(), &event);
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[test]
fn what_was_recorded_is_written_when_the_trail_ends() {
    let directory = TempDir::new();
    let (trail, worker) = Trail::begin(&config(directory.file())).unwrap();
    trail.record_reload("policy api added");
    trail.record(Timestamp::default(), &STOP);
    drop(worker);
    let lines = lines(&directory.file());
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0]["time"], "1970-01-01T00:00:00.000Z");
    assert_eq!(lines[0]["event"], "reload");
    assert_eq!(lines[0]["changes"][0], "policy api added");
    assert_eq!(lines[1]["event"], "stop");
    let mode = fs::metadata(directory.file()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn full_files_are_kept_as_many_as_asked_for() {
    for keep in [0, 1, 3] {
        let directory = TempDir::new();
        let (trail, worker) =
            Trail::begin(&AuditConfig { keep, ..config(directory.file()) }).unwrap();
        for number in 0..500 {
            trail.record_reload(&format!("number {number}"));
        }
        drop(worker);
        let mut newest = 499;
        let numbered = (1..=keep).map(|n| directory.0.join(format!("audit.jsonl.{n}")));
        for path in std::iter::once(directory.file()).chain(numbered) {
            assert!(fs::metadata(&path).unwrap().len() <= 4096);
            for line in lines(&path).iter().rev() {
                assert_eq!(line["changes"][0], format!("number {newest}"));
                newest -= 1;
            }
        }
        assert_eq!(fs::read_dir(&directory.0).unwrap().count(), keep + 1);
    }
}

#[test]
fn a_trail_after_a_restart_goes_on_where_the_last_one_ended() {
    let directory = TempDir::new();
    for _ in 0..2 {
        let (trail, _worker) = Trail::begin(&config(directory.file())).unwrap();
        trail.record(Timestamp::default(), &STOP);
    }
    assert_eq!(lines(&directory.file()).len(), 2);
}

#[test]
fn a_full_disk_loses_records_and_counts_them() {
    let (trail, worker) = Trail::begin(&config("/dev/full".into())).unwrap();
    (0..100).for_each(|_| trail.record(Timestamp::default(), &STOP));
    drop(worker);
    assert_eq!(trail.dropped(), 100);
}

#[test]
fn lost_records_are_reported_in_the_next_line() {
    let directory = TempDir::new();
    let (trail, worker) = Trail::begin(&config(directory.file())).unwrap();
    trail.losses.on_disk.store(7, Ordering::Relaxed);
    trail.record(Timestamp::default(), &STOP);
    trail.record(Timestamp::default(), &STOP);
    drop(worker);
    let lines = lines(&directory.file());
    assert_eq!(lines[0]["dropped"], 7);
    assert_eq!(lines[1].get("dropped"), None);
}

#[test]
fn a_stuck_disk_delays_no_request() {
    let directory = TempDir::new();
    let made = std::process::Command::new("mkfifo").arg(directory.file()).status().unwrap();
    assert!(made.success());
    let (trail, _worker) = Trail::begin(&config(directory.file())).unwrap();
    let more_than_a_pipe_takes = 20_000;
    for _ in 0..MAX_QUEUED_LINES + more_than_a_pipe_takes {
        trail.record(Timestamp::default(), &STOP);
    }
    assert!(trail.dropped() > 0);
}

#[test]
fn a_file_that_cannot_be_opened_is_named() {
    let error = Trail::begin(&config("/nowhere/at/all".into())).unwrap_err();
    let text = format!("{error:#}");
    assert!(text.starts_with("audit.file: cannot open /nowhere/at/all: "), "{text}");
}
