//! The name of a quota on the wire.

use slidegate::{PolicyStanding, Standing};

use crate::headers::text::Text;

/// Writes the policy's name if it has one quota, else the name and the window: `api/60s`.
///
/// The slash cannot stand in a policy's name, so names made with it are nobody else's. Copies
/// beyond the first are numbered: `api/2`.
pub(crate) fn write_name(
    text: &mut impl Text,
    policy: &PolicyStanding,
    standing: &Standing,
    copy: u32,
) {
    text.put(policy.policy());
    if policy.standings().len() > 1 {
        let window = standing.quota().window();
        let (count, unit) = match window.subsec_millis() {
            0 => (window.as_secs().into(), "s"),
            _ => (window.as_millis(), "ms"),
        };
        put_part(text, count, unit);
    }
    if copy > 1 {
        put_part(text, copy.into(), "");
    }
}

fn put_part(text: &mut impl Text, count: u128, unit: &str) {
    text.put("/");
    text.put(itoa::Buffer::new().format(count));
    text.put(unit);
}
