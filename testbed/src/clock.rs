//! A wall clock for server processes that only the test moves.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::directory::Directory;
use crate::process::output;

/// 2026-01-01T00:00:00Z.
const START_US: u64 = 1_767_225_600_000_000;

const DAY_US: u64 = 86_400_000_000;

/// The wall-clock time that the servers started under it see, standing still until it is moved.
///
/// Clones are the same clock. Monotonic time goes on for the servers, and with it their timers and
/// sockets; keys expire by this clock. A process sees a move at its next look at the time.
#[derive(Debug, Clone)]
pub struct ManualTime {
    shared: Arc<Shared>,
}

/// Where in the file the value is.
#[derive(Debug, Clone, Copy)]
enum Word {
    Now = 0,
    Ahead = 8,
}

#[derive(Debug)]
struct Shared {
    now_us: Mutex<u64>,
    word: Word,
    file: File,
    directory: Directory,
    shim: Arc<Shim>,
}

impl ManualTime {
    /// A clock that stands at 2026-01-01T00:00:00Z.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "the start is worth a visible call")]
    pub fn new() -> Self {
        Self::start(Word::Now, START_US)
    }

    /// A clock that goes on by itself, a day ahead of the real time, and is moved besides.
    #[must_use]
    pub fn running_ahead() -> Self {
        Self::start(Word::Ahead, DAY_US)
    }

    fn start(word: Word, us: u64) -> Self {
        let directory = Directory::new();
        let file = File::create(directory.file(FILE_NAME)).expect("the directory is writable");
        let shim = Shim::shared();
        let shared = Shared { now_us: Mutex::new(us), word, file, directory, shim };
        shared.show(us);
        Self { shared: Arc::new(shared) }
    }

    /// Microseconds since the epoch; of a clock that goes on by itself, those it is ahead.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        *self.shared.lock()
    }

    /// Moves the clock forwards, by whole microseconds.
    pub fn advance(&self, by: Duration) {
        self.shared.change(|now_us| now_us.checked_add(whole_us(by)));
    }

    /// Moves the clock backwards, by whole microseconds, as a correction of a real clock may.
    pub fn step_back(&self, by: Duration) {
        // 0 would mean the real time.
        self.shared.change(|now_us| now_us.checked_sub(whole_us(by)).filter(|us| *us > 0));
    }

    /// Makes the process that the command starts live by this clock.
    pub(crate) fn govern(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.shared.shim.library());
        command.env("SLIDEGATE_TESTBED_CLOCK", self.shared.directory.file(FILE_NAME));
    }
}

const FILE_NAME: &str = "now_us";

impl Shared {
    fn lock(&self) -> MutexGuard<'_, u64> {
        self.now_us.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(u64) -> Option<u64>) {
        let mut now_us = self.lock();
        *now_us = change(*now_us).expect("the time stays after 1970 and within 64 bits");
        self.show(*now_us);
    }

    fn show(&self, now_us: u64) {
        self.file
            .write_all_at(&now_us.to_ne_bytes(), self.word as u64)
            .expect("the clock's file is writable");
    }
}

fn whole_us(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).expect("a move fits 64 bits of microseconds")
}

/// The compiled `clock.c`.
#[derive(Debug)]
struct Shim {
    directory: Directory,
}

impl Shim {
    /// The library that all living clocks share: compiled with the first, removed with the last.
    fn shared() -> Arc<Self> {
        static SHARED: Mutex<Weak<Shim>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let shim = Arc::new(Self::compile());
            *shared = Arc::downgrade(&shim);
            shim
        })
    }

    fn compile() -> Self {
        let directory = Directory::new();
        let source = directory.write("clock.c", include_str!("clock.c"));
        let shim = Self { directory };
        let mut cc = Command::new("cc");
        cc.args(["-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o"]);
        cc.arg(shim.library()).arg(source);
        output(&mut cc, "apt-get install gcc libc6-dev");
        shim
    }

    fn library(&self) -> PathBuf {
        self.directory.file("clock.so")
    }
}
