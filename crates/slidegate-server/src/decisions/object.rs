//! JSON objects, written in one pass: a reply has some twenty fields, and is written for every
//! decision.

/// An object that is being written.
pub(super) struct Object<'o> {
    out: &'o mut Vec<u8>,
    is_empty: bool,
}

impl<'o> Object<'o> {
    pub(super) fn begin(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_empty: true }
    }

    pub(super) fn end(self) {
        self.out.push(b'}');
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        write_text(self.key(key), value);
    }

    pub(super) fn number(&mut self, key: &str, value: u64) {
        self.key(key).extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
    }

    pub(super) fn flag(&mut self, key: &str, value: bool) {
        self.key(key).extend_from_slice(if value { b"true" } else { b"false" });
    }

    pub(super) fn object(&mut self, key: &str, write: impl FnOnce(&mut Object<'_>)) {
        let mut object = Object::begin(self.key(key));
        write(&mut object);
        object.end();
    }

    pub(super) fn objects<T>(
        &mut self,
        key: &str,
        items: impl Iterator<Item = T>,
        write: impl Fn(&mut Object<'_>, T),
    ) {
        let out = self.key(key);
        out.push(b'[');
        for (place, item) in items.enumerate() {
            if place > 0 {
                out.push(b',');
            }
            let mut object = Object::begin(out);
            write(&mut object, item);
            object.end();
        }
        out.push(b']');
    }

    /// Writes a key, which needs no escapes: ours are words, and those of headers are tokens.
    fn key(&mut self, key: &str) -> &mut Vec<u8> {
        if !self.is_empty {
            self.out.push(b',');
        }
        self.is_empty = false;
        self.out.push(b'"');
        self.out.extend_from_slice(key.as_bytes());
        self.out.extend_from_slice(b"\":");
        self.out
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    let is_plain = |byte: u8| byte >= b' ' && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        serde_json::to_writer(out, text).expect("a text can be JSON");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_as_it_was() {
        let texts = ["", "plain", "a \"b\" \\ c\n\t\u{1}", "grüß \u{1f980}", "/"];
        let mut out = Vec::new();
        let mut object = Object::begin(&mut out);
        object.number("number", u64::MAX);
        object.flag("yes", true);
        object.flag("no", false);
        object.objects("texts", texts.iter(), |object, text| object.text("text", text));
        object.objects("none", std::iter::empty::<()>(), |_, ()| {});
        object.object("empty", |_| {});
        object.object("inner", |inner| inner.text("a", "b"));
        object.end();
        let read: serde_json::Value = serde_json::from_slice(&out).unwrap();
        let texts: Vec<_> = texts.iter().map(|text| serde_json::json!({ "text": text })).collect();
        let expected = serde_json::json!({
            "number": u64::MAX, "yes": true, "no": false, "texts": texts, "none": [],
            "empty": {}, "inner": { "a": "b" },
        });
        assert_eq!(read, expected);
    }
}
