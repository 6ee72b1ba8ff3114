//! What the code under test traces.

use std::cell::RefCell;
use std::fmt::{self, Write};
use std::marker::PhantomData;
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    static TEXT: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Writes down everything that this thread traces, at every level, a line for each event. For tests
/// whose runtime has one thread.
pub(crate) struct Trace {
    /// It is this thread's.
    _thread: PhantomData<*const ()>,
}

impl Trace {
    pub(crate) fn start() -> Self {
        static GLOBAL: Once = Once::new();
        // The same for all threads: which events are wanted is remembered for all of them.
        GLOBAL.call_once(|| {
            tracing::subscriber::set_global_default(ThisThread).unwrap();
            tracing::callsite::rebuild_interest_cache();
        });
        TEXT.set(Some(String::new()));
        Self { _thread: PhantomData }
    }

    pub(crate) fn text(&self) -> String {
        TEXT.with_borrow(Clone::clone).unwrap_or_default()
    }

    /// Warnings and errors.
    pub(crate) fn warnings(&self) -> String {
        let is_warning = |line: &&str| line.starts_with("WARN") || line.starts_with("ERROR");
        self.text().split_inclusive('\n').filter(is_warning).collect()
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        TEXT.set(None);
    }
}

struct ThisThread;

impl Subscriber for ThisThread {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        write(span.metadata(), |fields| span.record(fields));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        write(event.metadata(), |fields| event.record(fields));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn write(metadata: &Metadata<'_>, record: impl FnOnce(&mut Fields<'_>)) {
    TEXT.with_borrow_mut(|text| {
        let Some(text) = text else { return };
        write!(text, "{} {}", metadata.level(), metadata.target()).unwrap();
        record(&mut Fields(text));
        text.push('\n');
    });
}

struct Fields<'t>(&'t mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {field}={value:?}").unwrap();
    }
}
