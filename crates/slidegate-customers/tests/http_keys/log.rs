//! The log lines of one test.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Keeps all events of this thread, also those of libraries.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

/// With one subscriber only, tracing would ask whichever thread comes by an event first whether anyone
/// wants it, and remember the answer of one that has no subscriber.
pub(crate) struct CaptureGuard {
    _default: DefaultGuard,
    _second: Dispatch,
}

impl Log {
    /// Captures until the guard is dropped.
    pub(crate) fn capture() -> (Self, CaptureGuard) {
        let log = Self::default();
        let _default = tracing::subscriber::set_default(log.clone());
        let _second = Dispatch::new(Self::default());
        (log, CaptureGuard { _default, _second })
    }

    /// The lines of targets that begin so: target, level, then fields.
    pub(crate) fn lines_of(&self, target: &str) -> Vec<String> {
        let lines = self.0.lock().unwrap();
        lines.iter().filter(|line| line.starts_with(target)).cloned().collect()
    }
}

impl Subscriber for Log {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.0.lock().unwrap().push(format!("{span:?}"));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let metadata = event.metadata();
        let mut line = Line(format!("{} {}", metadata.target(), metadata.level()));
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}
