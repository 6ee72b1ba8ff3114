//! How the values of the fields are written, wherever they go.

use http::HeaderName;
use slidegate::{Decision, PolicyStanding, Standing};

use crate::headers::Reset;
use crate::headers::dialect::{Item, parameter};
use crate::headers::name::write_name;
use crate::headers::value::{has_stricter_twin, shown};
use crate::seconds;

/// Takes a value piece by piece.
pub trait Text {
    /// The next piece: letters, digits and punctuation, but neither quotes nor backslashes.
    fn put(&mut self, piece: &str);

    /// A double quote.
    fn put_quote(&mut self);
}

/// Takes one field after the other, for whoever sends headers in another form than HTTP's.
pub trait Fields: Text {
    /// Begins a field. What is put until the next one begins is its value.
    fn begin(&mut self, name: &HeaderName);
}

impl Text for Vec<u8> {
    fn put(&mut self, piece: &str) {
        self.extend_from_slice(piece.as_bytes());
    }

    fn put_quote(&mut self) {
        self.push(b'"');
    }
}

/// An item for each quota that headers tell of.
pub(super) fn put_list(text: &mut impl Text, decision: &Decision, item: Item, copy: u32) {
    let mut is_first = true;
    for (policy, standing) in shown(decision) {
        if matches!(item, Item::Unnamed) && has_stricter_twin(decision, standing) {
            continue;
        }
        if !is_first {
            text.put(", ");
        }
        is_first = false;
        match item {
            Item::Standing => put_standing(text, policy, standing, copy),
            Item::Quota => put_quota(text, policy, standing, copy),
            Item::Unnamed => put_unnamed(text, standing),
        }
    }
}

/// The dictionary of draft -07.
pub(super) fn put_dictionary(text: &mut impl Text, tightest: &Standing, reset: Reset) {
    text.put("limit=");
    put_integer(text, tightest.quota().units().get().into());
    text.put(", remaining=");
    put_integer(text, tightest.remaining().into());
    text.put(", reset=");
    put_integer(text, reset.after_s);
}

pub(super) fn put_integer(text: &mut impl Text, value: u64) {
    text.put(itoa::Buffer::new().format(value));
}

fn put_standing(text: &mut impl Text, policy: &PolicyStanding, standing: &Standing, copy: u32) {
    put_name(text, policy, standing, copy);
    text.put(parameter::AVAILABLE);
    put_integer(text, standing.remaining().into());
    text.put(parameter::EFFECTIVE_WINDOW);
    put_integer(text, seconds::effective_window_s(standing));
}

fn put_quota(text: &mut impl Text, policy: &PolicyStanding, standing: &Standing, copy: u32) {
    put_name(text, policy, standing, copy);
    text.put(parameter::QUOTA);
    put_integer(text, standing.quota().units().get().into());
    text.put(parameter::WINDOW);
    put_integer(text, seconds::ceil(standing.quota().window()));
}

fn put_unnamed(text: &mut impl Text, standing: &Standing) {
    put_integer(text, standing.quota().units().get().into());
    text.put(parameter::WINDOW);
    put_integer(text, seconds::ceil(standing.quota().window()));
}

fn put_name(text: &mut impl Text, policy: &PolicyStanding, standing: &Standing, copy: u32) {
    text.put_quote();
    write_name(text, policy, standing, copy);
    text.put_quote();
}
