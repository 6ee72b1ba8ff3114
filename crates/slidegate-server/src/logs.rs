//! Where log lines go: to standard error, as JSON or for people.

use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;

use anyhow::Context;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{LogConfig, LogFormat};
use crate::terminal::has_colours;
use crate::visible::VisibleLines;

/// The most lines that wait for a writer: a few megabytes.
pub(crate) const MAX_QUEUED_LINES: usize = 8192;

static DROPPED: OnceLock<ErrorCounter> = OnceLock::new();

/// Starts logging. Logging never blocks a request: lines that find the queue full are dropped and
/// counted. When the guard is dropped, lines in the queue have a second to be written.
pub(crate) fn init(config: &LogConfig) -> anyhow::Result<WorkerGuard> {
    let (lines, worker) = non_blocking("log", io::stderr());
    let _ = DROPPED.set(lines.error_counter());
    let style = LogStyle::of(config.format, &io::stderr());
    subscriber(style, &config.level, lines)?.try_init().context("logging has begun already")?;
    Ok(worker)
}

/// Whether log lines are JSON.
pub(crate) fn is_json(config: &LogConfig) -> bool {
    LogStyle::of(config.format, &io::stderr()) == LogStyle::Json
}

/// Log lines dropped since the process started.
pub(crate) fn dropped_lines() -> u64 {
    DROPPED.get().map_or(0, |dropped| dropped.dropped_lines() as u64)
}

/// A bounded queue of lines, and the thread that writes them.
pub(crate) fn non_blocking(
    thread: &str,
    writer: impl Write + Send + 'static,
) -> (NonBlocking, WorkerGuard) {
    NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(MAX_QUEUED_LINES)
        .thread_name(thread)
        .finish(writer)
}

/// How a line looks, decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogStyle {
    Json,
    Pretty { colour: bool },
}

impl LogStyle {
    fn of(format: LogFormat, stderr: &io::Stderr) -> Self {
        match format {
            LogFormat::Auto if !stderr.is_terminal() => Self::Json,
            LogFormat::Json => Self::Json,
            LogFormat::Auto | LogFormat::Pretty => Self::Pretty { colour: has_colours(stderr) },
        }
    }
}

fn subscriber<W>(
    style: LogStyle,
    level: &str,
    writers: W,
) -> anyhow::Result<Box<dyn tracing::Subscriber + Send + Sync>>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::builder().parse(level).with_context(|| {
        format!("{level:?} is not a log level, such as info or slidegate=debug")
    })?;
    let registry = tracing_subscriber::registry().with(filter);
    // What cannot be written is not to be written about: that panics if standard error is closed.
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(VisibleLines(writers))
        .log_internal_errors(false);
    Ok(match style {
        LogStyle::Json => {
            let json = lines.json().flatten_event(true);
            Box::new(registry.with(json.with_current_span(false).with_span_list(false)))
        }
        LogStyle::Pretty { colour } => Box::new(registry.with(lines.with_ansi(colour))),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::{Arc, LazyLock, Mutex, PoisonError};

    use serde_json::Value;

    use super::*;

    /// Keeps what is written.
    #[derive(Clone, Default)]
    pub(crate) struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Kept {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// The lines that are logged meanwhile, as JSON.
    pub(crate) fn lines_of(level: &str, work: impl FnOnce()) -> Vec<Value> {
        let text = logged(LogStyle::Json, level, work);
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    static ALONE: Mutex<()> = Mutex::new(());

    /// While there is one subscriber only, tracing asks the current thread's whether anything is
    /// interested in a new place of logging: a test in another thread that is there first would answer
    /// that nothing is.
    static SECOND_SUBSCRIBER: LazyLock<tracing::Dispatch> =
        LazyLock::new(|| tracing::Dispatch::new(tracing_subscriber::registry()));

    fn logged(style: LogStyle, level: &str, work: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writers = kept.clone();
        let subscriber = subscriber(style, level, move || writers.clone()).unwrap();
        LazyLock::force(&SECOND_SUBSCRIBER);
        // One at a time, with the interest cache rebuilt: it is global to the process.
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        tracing::subscriber::with_default(subscriber, || {
            tracing::callsite::rebuild_interest_cache();
            work();
        });
        kept.text()
    }

    #[test]
    fn json_lines_have_their_fields_at_the_top() {
        let lines = lines_of("info", || {
            tracing::info!(target: "slidegate::here", path = "/a\"\n\x1b[31m", units = 5, "hello");
            tracing::debug!("not this");
        });
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0]["level"], "INFO");
        assert_eq!(lines[0]["target"], "slidegate::here");
        assert_eq!(lines[0]["message"], "hello");
        assert_eq!(lines[0]["path"], "/a\"\n\x1b[31m");
        assert_eq!(lines[0]["units"], 5);
        assert!(lines[0]["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn lines_show_every_character_that_would_hide_or_turn_others() {
        let log = || tracing::info!(path = "/a\u{9b}31m\u{202e}b\u{2028}", "he\u{202e}llo");
        for style in [LogStyle::Json, LogStyle::Pretty { colour: false }] {
            let text = logged(style, "info", log);
            let is_raw = |c| ['\u{9b}', '\u{202e}', '\u{2028}'].contains(&c);
            assert!(!text.contains(is_raw) && text.contains("he\\u202ello"), "{text:?}");
        }
        let lines = lines_of("info", log);
        assert_eq!(lines[0]["path"], "/a\u{9b}31m\u{202e}b\u{2028}", "the same when it is read");
    }

    #[test]
    fn pretty_lines_stay_lines_whatever_is_in_them() {
        let log = || tracing::info!(path = "/a\nforged\x1b[31m", "hello");
        let text = logged(LogStyle::Pretty { colour: false }, "info", log);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\x1b') && text.contains("hello"), "{text}");
        assert!(logged(LogStyle::Pretty { colour: true }, "info", log).contains("\x1b["));
    }

    /// A stream that is not read until the lock is free.
    struct Stuck(Arc<Mutex<()>>);

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            drop(self.0.lock());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_stuck_stream_blocks_no_request() {
        let lock = Arc::new(Mutex::new(()));
        let held = lock.lock().unwrap();
        let (mut lines, worker) = non_blocking("test", Stuck(lock.clone()));
        for _ in 0..MAX_QUEUED_LINES + 100 {
            lines.write_all(b"line\n").unwrap();
        }
        assert!(lines.error_counter().dropped_lines() >= 99);
        drop(held);
        drop(worker);
    }

    #[test]
    fn levels_can_be_given_by_target() {
        let lines = lines_of("warn,slidegate::denied=info", || {
            tracing::info!(target: "slidegate::denied", "this");
            tracing::info!(target: "slidegate::access", "not this");
        });
        assert_eq!(lines.len(), 1);
        let error = subscriber(LogStyle::Json, "slidegate=loud", io::sink).err().unwrap();
        assert!(error.to_string().contains("slidegate=loud"), "{error}");
    }
}
