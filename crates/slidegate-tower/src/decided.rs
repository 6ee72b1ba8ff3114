//! A decision on its way into a response.

use http::Extensions;
use slidegate::{Decision, Facts, Gate, MemoryStore, Store};

/// A decision, or that the store could not count.
///
/// The decision is made where it will be in the end, in a response's extensions, because it is
/// large to move about.
#[derive(Debug)]
pub(crate) struct Decided(Extensions);

impl Decided {
    /// Asks a gate that answers at once.
    pub(crate) fn now(gate: &Gate<MemoryStore>, facts: &Facts<'_>) -> Self {
        let mut extensions = Extensions::new();
        let outcome = gate.decide_now_into(facts, extensions.get_or_insert_with(Decision::default));
        Self::of(extensions, outcome.is_ok())
    }

    /// Asks a gate.
    pub(crate) async fn by<S: Store>(gate: &Gate<S>, facts: &Facts<'_>) -> Self {
        let mut extensions = Extensions::new();
        let decision = extensions.get_or_insert_with(Decision::default);
        let outcome = gate.decide_into(facts, decision).await;
        Self::of(extensions, outcome.is_ok())
    }

    fn of(extensions: Extensions, is_counted: bool) -> Self {
        Self(if is_counted { extensions } else { Extensions::new() })
    }

    /// What the gate said; none if the store could not count.
    pub(crate) fn decision(&self) -> Option<&Decision> {
        self.0.get()
    }

    /// Puts the decision where it belongs, if there is one.
    pub(crate) fn put_into(self, extensions: &mut Extensions) {
        extensions.extend(self.0);
    }
}
