//! Where a cluster keeps a key.

/// The slot of a key: its hash, or that of the text in its first braces.
pub(crate) fn slot_of(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    let hashed = tag.filter(|tag| !tag.is_empty()).unwrap_or(key);
    crc16::State::<crc16::XMODEM>::calculate(hashed.as_bytes()) % 16384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_server() {
        // From CLUSTER KEYSLOT.
        for (key, slot) in
            [("foo", 12182), ("{user1000}.following", 3443), ("{user1000}.followers", 3443)]
        {
            assert_eq!(slot_of(key), slot, "{key}");
        }
        assert_eq!(slot_of("foo{}{bar}"), 8363, "empty braces are no braces");
        assert_eq!(slot_of("foo{{bar}}zap"), slot_of("{{bar}"));
    }
}
