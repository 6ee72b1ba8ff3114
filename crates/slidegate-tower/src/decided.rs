//! A decision on its way into a response.

use http::{Extensions, Response};
use slidegate::{Decision, Facts, Gate, MemoryStore, Store};

use crate::aside::Aside;
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
    Aside(Box<Aside>),
}

impl Decided {
    /// Asks a gate that answers at once.
    pub(crate) fn now(gate: &Gate<MemoryStore>, facts: &Facts<'_>, is_aside: bool) -> Self {
        let mut place = Place::new(is_aside);
        let is_counted = gate.decide_now_into(facts, place.decision_mut()).is_ok();
        Self { place, is_counted }
    }

    /// Asks a gate.
    pub(crate) async fn by<S: Store>(gate: &Gate<S>, facts: &Facts<'_>, is_aside: bool) -> Self {
        let mut place = Place::new(is_aside);
        let is_counted = gate.decide_into(facts, place.decision_mut()).await.is_ok();
        Self { place, is_counted }
    }

    /// What the response is to have beside its headers and its body, if it is for a server.
    pub(crate) fn aside_mut(&mut self) -> Option<&mut Aside> {
        match &mut self.place {
            Place::Extensions(_) => None,
            Place::Aside(aside) => Some(aside),
        }
    }

    /// What the gate said; none if the store could not count.
    pub(crate) fn decision(&self) -> Option<&Decision> {
        let decision = match &self.place {
            Place::Extensions(extensions) => extensions.get(),
            Place::Aside(aside) => aside.decision.as_ref(),
        };
        decision.filter(|_| self.is_counted)
    }

    /// Puts the decision where it belongs, if there is one.
    pub(crate) fn put_into<R>(self, response: &mut Response<ResponseBody<R>>) {
        match self.place {
            Place::Extensions(_) if !self.is_counted => {}
            Place::Extensions(extensions) => response.extensions_mut().extend(extensions),
            Place::Aside(mut aside) => {
                aside.decision.take_if(|_| !self.is_counted);
                response.body_mut().aside = Some(aside);
            }
        }
    }

    /// Leaves it to the decision of a layer further in.
    pub(crate) fn give_way<R>(mut self, response: &mut Response<ResponseBody<R>>) {
        if let Some(aside) = self.aside_mut() {
            aside.decision = response.extensions_mut().remove();
            self.put_into(response);
        }
    }
}

impl Place {
    fn new(is_aside: bool) -> Self {
        match is_aside {
            false => Self::Extensions(Extensions::new()),
            true => Self::Aside(Box::default()),
        }
    }

    fn decision_mut(&mut self) -> &mut Decision {
        match self {
            Self::Extensions(extensions) => extensions.get_or_insert_with(Decision::default),
            Self::Aside(aside) => aside.decision.insert(Decision::default()),
        }
    }
}
