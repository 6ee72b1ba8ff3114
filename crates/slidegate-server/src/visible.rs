//! Text from outside, made safe to look at: no character moves, hides or turns what is beside it.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Write};

use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing_subscriber::fmt::MakeWriter;

/// The text with C1 controls, DEL, line separators and characters that change the direction of writing
/// as `\uXXXX`. Of a line of JSON it is JSON with the same meaning.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    escape(text, is_invisible)
}

/// The same for a text that is not JSON, in which C0 controls but for line breaks are escaped too.
pub(crate) fn visible_text(text: &str) -> Cow<'_, str> {
    escape(text, |c| is_invisible(c) || (c.is_ascii_control() && c != '\n'))
}

/// Reads JSON of a server that may be hostile, with all its texts made visible.
pub(crate) fn from_json<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let mut value = serde_json::from_slice(json)?;
    clean(&mut value);
    serde_json::from_value(value)
}

fn clean(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(escaped) = visible_text(text) {
                *text = escaped;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(clean),
        Value::Object(members) => members.values_mut().for_each(clean),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn escape(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_escaped(c) {
            let _ = write!(escaped, "\\u{:04x}", u32::from(c));
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// All of them are below U+10000, so four digits are enough.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{7f}'..='\u{9f}'
        | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}')
}

/// Makes the lines visible that are written to `W`.
pub(crate) struct VisibleLines<W>(pub(crate) W);

impl<'w, W: MakeWriter<'w>> MakeWriter<'w> for VisibleLines<W> {
    type Writer = VisibleWriter<W::Writer>;

    fn make_writer(&'w self) -> Self::Writer {
        VisibleWriter(self.0.make_writer())
    }
}

/// A writer that is given whole lines.
pub(crate) struct VisibleWriter<W>(W);

impl<W: Write> Write for VisibleWriter<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(line) {
            Ok(text) => self.0.write_all(visible(text).as_bytes())?,
            Err(_) => self.0.write_all(line)?,
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_hides_or_turns_is_escaped_and_nothing_else() {
        for (text, expected) in [
            ("/a/b?ü 漢字 🙂", "/a/b?ü 漢字 🙂"),
            ("a\u{9b}31mb", "a\\u009b31mb"),
            ("a\u{202e}b\u{2028}c\u{2066}", "a\\u202eb\\u2028c\\u2066"),
            ("\u{feff}a\u{7f}", "\\ufeffa\\u007f"),
        ] {
            assert_eq!(visible(text), expected);
            let json = serde_json::to_string(text).unwrap();
            assert_eq!(serde_json::from_str::<String>(&visible(&json)).unwrap(), text);
        }
        assert_eq!(visible_text("a\x1b[2Jb\nc\u{85}"), "a\\u001b[2Jb\nc\\u0085");
    }

    #[test]
    fn texts_of_a_server_are_made_visible_wherever_they_are() {
        let json = br#"{"detail": "\u001b[2J", "refusing": ["\u202e", "api"], "status": 503}"#;
        let value: Value = from_json(json).unwrap();
        let expected = serde_json::json!({
            "detail": "\\u001b[2J", "refusing": ["\\u202e", "api"], "status": 503
        });
        assert_eq!(value, expected);
    }
}
