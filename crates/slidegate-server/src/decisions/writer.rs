//! JSON, written in one pass: a reply has some twenty members, and is written for every decision.

use std::io::Write;

/// JSON that is being written.
///
/// What stands between values is written as it is, with the names of members: pieces of a known
/// length are copied in a few instructions.
pub(super) struct JsonWriter<'o>(pub(super) &'o mut Vec<u8>);

impl JsonWriter<'_> {
    /// Writes JSON, or a part of a text that needs no escapes.
    #[inline(always)]
    pub(super) fn put(&mut self, json: &str) {
        self.0.extend_from_slice(json.as_bytes());
    }

    pub(super) fn number(&mut self, value: u64) {
        self.put(itoa::Buffer::new().format(value));
    }

    pub(super) fn flag(&mut self, value: bool) {
        if value { self.put("true") } else { self.put("false") }
    }

    /// Writes a text, with quotes and with escapes where it needs them.
    pub(super) fn text(&mut self, text: &str) {
        self.0.push(b'"');
        let mut rest = text.as_bytes();
        while let Some(end) = rest.iter().copied().position(needs_escape) {
            self.0.extend_from_slice(&rest[..end]);
            self.escape(rest[end]);
            rest = &rest[end + 1..];
        }
        self.0.extend_from_slice(rest);
        self.0.push(b'"');
    }

    fn escape(&mut self, byte: u8) {
        match byte {
            b'"' => self.put("\\\""),
            b'\\' => self.put("\\\\"),
            b'\n' => self.put("\\n"),
            b'\r' => self.put("\\r"),
            b'\t' => self.put("\\t"),
            0x08 => self.put("\\b"),
            0x0c => self.put("\\f"),
            _ => write!(self.0, "\\u{byte:04x}").expect("a vector takes all"),
        }
    }
}

/// Whether a text cannot have this byte as it is.
pub(super) fn needs_escape(byte: u8) -> bool {
    NEEDS_ESCAPE[usize::from(byte)]
}

/// Looking a byte up is faster than comparing it.
static NEEDS_ESCAPE: [bool; 256] = {
    let mut table = [false; 256];
    let mut control = 0;
    while control < 0x20 {
        table[control] = true;
        control += 1;
    }
    table[b'"' as usize] = true;
    table[b'\\' as usize] = true;
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut JsonWriter<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut JsonWriter(&mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn texts_have_the_escapes_of_serde_json() {
        let controls: String = (0..=0x7f_u8).map(char::from).collect();
        for text in ["", "plain", "\"", "a \"b\" \\ c\n", "grüß \u{1f980}\u{2028}", "/", &controls]
        {
            assert_eq!(written(|out| out.text(text)), serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn numbers_and_flags() {
        for number in [0, 9, 10, u64::from(u32::MAX), u64::MAX] {
            assert_eq!(written(|out| out.number(number)), number.to_string());
        }
        assert_eq!(written(|out| out.flag(true)), "true");
        assert_eq!(written(|out| out.flag(false)), "false");
    }
}
