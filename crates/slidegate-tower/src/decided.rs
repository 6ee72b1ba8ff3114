//! A decision on its way into a response.

use http::{Extensions, Response};
use slidegate::{Decision, Facts, Gate, MemoryStore, Store};

use crate::body::ResponseBody;

/// A decision, or that the store could not count.
///
/// The decision is made where it will be in the end, because it is large to move about.
#[derive(Debug)]
pub(crate) struct Decided {
    place: Place,
    is_counted: bool,
}

/// Where a response has its decision.
#[derive(Debug)]
enum Place {
    Extensions(Extensions),
    Body(Box<Decision>),
}

impl Decided {
    /// Asks a gate that answers at once.
    pub(crate) fn now(gate: &Gate<MemoryStore>, facts: &Facts<'_>, is_bare: bool) -> Self {
        let mut place = Place::new(is_bare);
        let is_counted = gate.decide_now_into(facts, place.decision_mut()).is_ok();
        Self { place, is_counted }
    }

    /// Asks a gate.
    pub(crate) async fn by<S: Store>(gate: &Gate<S>, facts: &Facts<'_>, is_bare: bool) -> Self {
        let mut place = Place::new(is_bare);
        let is_counted = gate.decide_into(facts, place.decision_mut()).await.is_ok();
        Self { place, is_counted }
    }

    /// Whether the response is to be bare.
    pub(crate) fn is_bare(&self) -> bool {
        matches!(self.place, Place::Body(_))
    }

    /// What the gate said; none if the store could not count.
    pub(crate) fn decision(&self) -> Option<&Decision> {
        let decision = match &self.place {
            Place::Extensions(extensions) => extensions.get(),
            Place::Body(decision) => Some(&**decision),
        };
        decision.filter(|_| self.is_counted)
    }

    /// Puts the decision of a layer further in where this one belongs.
    pub(crate) fn leave_to_inner<R>(self, response: &mut Response<ResponseBody<R>>) {
        if self.is_bare() {
            let inner = response.extensions_mut().remove::<Decision>();
            response.body_mut().decision = inner.map(Box::new);
        }
    }

    /// Puts the decision where it belongs, if there is one.
    pub(crate) fn put_into<R>(self, response: &mut Response<ResponseBody<R>>) {
        match self.place {
            _ if !self.is_counted => {}
            Place::Extensions(extensions) => response.extensions_mut().extend(extensions),
            Place::Body(decision) => response.body_mut().decision = Some(decision),
        }
    }
}

impl Place {
    fn new(is_bare: bool) -> Self {
        match is_bare {
            false => Self::Extensions(Extensions::new()),
            true => Self::Body(Box::default()),
        }
    }

    fn decision_mut(&mut self) -> &mut Decision {
        match self {
            Self::Extensions(extensions) => extensions.get_or_insert_with(Decision::default),
            Self::Body(decision) => decision,
        }
    }
}
