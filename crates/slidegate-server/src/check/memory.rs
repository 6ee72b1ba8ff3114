//! What an account takes: at its worst, and as full as its requests make it.
//!
//! The figures behind it are measured in docs/benchmarks.md.

use slidegate::Quota;
use slidegate_redis::Layout;

/// The most entries that a ledger has, whatever its units.
const MAX_ENTRIES: u64 = 4097;
/// The longest identity.
const IDENTITY: u64 = 63;

/// The most bytes that an account with these quotas takes in a process: 64 in a hash table that has
/// just grown and is 7/16 full, the longest key, and for each quota a ledger with entries of a stamp
/// in six bytes and units in another six.
pub(super) fn embedded(quotas: &[Quota]) -> u64 {
    const ACCOUNT: u64 = 149 + 144;
    const LEDGER: u64 = 128;
    const ENTRY: u64 = 12;
    let ledger = |quota: &Quota| LEDGER + ENTRY * entries(*quota);
    ACCOUNT + quotas.iter().map(ledger).sum::<u64>()
}

/// The most bytes that an account takes in Redis: a key for each quota.
pub(super) fn redis(quotas: &[Quota], layout: Layout, key_len: usize) -> u64 {
    let key = key(key_len as u64 + IDENTITY);
    let ledger = |quota: &Quota| match layout {
        Layout::Packed => packed(entries(*quota)),
        Layout::SortedSet => sorted_set(quota.units().get().into()),
    };
    quotas.iter().map(|quota| key + ledger(quota)).sum()
}

/// The bytes of one key in Redis whose ledger has these units, from so many spends.
pub(crate) fn in_use(quota: Quota, units: u64, spends: u64, layout: Layout, key_len: usize) -> u64 {
    /// Of an address, or of a user's id.
    const IDENTITY: u64 = 16;
    let ledger = match layout {
        // Units of large quotas are not told apart.
        Layout::Packed if entries(quota) == MAX_ENTRIES => packed(spends.min(MAX_ENTRIES)),
        Layout::Packed => packed(units),
        Layout::SortedSet => sorted_set(units),
    };
    key(key_len as u64 + IDENTITY) + ledger
}

/// A header and slots of six bytes, an eighth of them to spare.
fn packed(entries: u64) -> u64 {
    const HEADER: u64 = 36;
    const SLOT: u64 = 6;
    const MIN_SLOTS: u64 = 8;
    let slots = (entries + entries.div_ceil(8)).max(MIN_SLOTS);
    allocated(HEADER + SLOT * slots)
}

/// A member for each unit. Up to 128 of them are in one piece of memory.
fn sorted_set(units: u64) -> u64 {
    if units <= 128 { allocated(64 + 40 * units) } else { 137 * units }
}

/// A key's name, and what Redis has for each key besides.
fn key(len: u64) -> u64 {
    const ENTRY: u64 = 24 + 16;
    allocated(len + 4) + ENTRY
}

fn entries(quota: Quota) -> u64 {
    u64::from(quota.units().get()).min(MAX_ENTRIES)
}

/// The size class of Redis's allocator for a request of this many bytes: four classes for each
/// doubling.
fn allocated(bytes: u64) -> u64 {
    let step = if bytes <= 128 { 16 } else { bytes.next_power_of_two() / 8 };
    bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of docs/benchmarks.md, which were measured.
    #[test]
    fn nothing_measured_is_above_the_worst_case() {
        let key_len = "slidegate:{:}:api:1000ms".len();
        for (quota, in_memory, packed, sorted_set) in [
            ("10/min", 136, 200, 472),
            ("100/min", 708, 856, 3672),
            ("600/min", 3720, 4184, 78_928),
            ("6000/min", 0, 28_760, 722_368),
            ("1000000/day", 0, 28_760, 117_713_664),
        ] {
            let quotas = [quota.parse().unwrap()];
            assert!(embedded(&quotas) >= in_memory, "{quota}");
            let worst = redis(&quotas, Layout::Packed, key_len);
            assert!((packed..packed + 200).contains(&worst), "{quota}: {worst}");
            let worst = redis(&quotas, Layout::SortedSet, key_len);
            assert!((sorted_set..sorted_set * 2).contains(&worst), "{quota}: {worst}");
        }
    }
}
