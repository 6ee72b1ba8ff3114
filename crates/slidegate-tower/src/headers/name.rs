//! The name of a quota on the wire.

use slidegate::{PolicyStanding, Standing};

/// Writes the policy's name if it has one quota, else the name and the window: `api/60s`.
///
/// The slash cannot stand in a policy's name, so names made with it are nobody else's. Copies
/// beyond the first are numbered: `api/2`.
pub(crate) fn write_name(
    buffer: &mut Vec<u8>,
    policy: &PolicyStanding,
    standing: &Standing,
    copy: u32,
) {
    buffer.extend_from_slice(policy.policy().as_bytes());
    if policy.standings().len() > 1 {
        let window = standing.quota().window();
        let (count, unit) = match window.subsec_millis() {
            0 => (window.as_secs().into(), "s"),
            _ => (window.as_millis(), "ms"),
        };
        put_part(buffer, count, unit);
    }
    if copy > 1 {
        put_part(buffer, copy.into(), "");
    }
}

fn put_part(buffer: &mut Vec<u8>, count: u128, unit: &str) {
    buffer.push(b'/');
    buffer.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    buffer.extend_from_slice(unit.as_bytes());
}
