//! Where log lines go: to standard error, as JSON or for people.

mod queue;

use std::io::{self, IsTerminal};

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use self::queue::Writers;
pub(crate) use self::queue::{LogQueue, dropped_lines};
use crate::config::{LogConfig, LogFormat};

/// How a line looks, decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogStyle {
    Json,
    Pretty { colour: bool },
}

/// Begins to log. Lines that are still on their way when the queue is dropped are waited for, a
/// moment.
pub(crate) fn init(config: &LogConfig) -> anyhow::Result<LogQueue> {
    let queue = queue::start(io::stderr())?;
    let look = LogStyle::of(config.format, &io::stderr());
    subscriber(look, &config.level, Writers::to(&queue))?
        .try_init()
        .context("logging has begun already")?;
    Ok(queue)
}

impl LogStyle {
    fn of(format: LogFormat, stderr: &impl IsTerminal) -> Self {
        let terminal = stderr.is_terminal();
        let objected = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match format {
            LogFormat::Auto if !terminal => Self::Json,
            LogFormat::Json => Self::Json,
            LogFormat::Auto | LogFormat::Pretty => Self::Pretty { colour: terminal && !objected },
        }
    }
}

fn subscriber<W>(
    look: LogStyle,
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
    let lines = tracing_subscriber::fmt::layer().with_writer(writers).log_internal_errors(false);
    Ok(match look {
        LogStyle::Json => {
            let json = lines.json().flatten_event(true);
            Box::new(registry.with(json.with_current_span(false).with_span_list(false)))
        }
        LogStyle::Pretty { colour } => Box::new(registry.with(lines.with_ansi(colour))),
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex, PoisonError};

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

    fn logged(look: LogStyle, level: &str, work: impl FnOnce()) -> String {
        let kept = Kept::default();
        let writers = kept.clone();
        let subscriber = subscriber(look, level, move || writers.clone()).unwrap();
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
    fn pretty_lines_stay_lines_whatever_is_in_them() {
        let log = || tracing::info!(path = "/a\nforged\x1b[31m", "hello");
        let text = logged(LogStyle::Pretty { colour: false }, "info", log);
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(!text.contains('\x1b') && text.contains("hello"), "{text}");
        assert!(logged(LogStyle::Pretty { colour: true }, "info", log).contains("\x1b["));
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
