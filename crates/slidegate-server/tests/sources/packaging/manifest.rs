//! As much of YAML as the manifest is written in: maps and lists by indentation, and block texts.

use std::iter::Peekable;

/// A document as lines of a path and a value, such as `spec.replicas` and `2`. Lists add nothing to
/// a path, so a path may have several values.
#[derive(Debug)]
pub(crate) struct Document(Vec<(String, String)>);

impl Document {
    /// The documents of a file. Panics at what it does not understand.
    pub(crate) fn all(text: &str) -> Vec<Self> {
        let documents = text.split("\n---\n").skip(1);
        documents.map(Self::read).collect()
    }

    pub(crate) fn values(&self, path: &str) -> Vec<&str> {
        let found = self.0.iter().filter(|(found, _)| found == path);
        found.map(|(_, value)| value.as_str()).collect()
    }

    /// The only value of a path.
    pub(crate) fn value(&self, path: &str) -> &str {
        let values = self.values(path);
        let [value] = values[..] else { panic!("{path}: {values:?}") };
        value
    }

    pub(crate) fn number(&self, path: &str) -> u64 {
        self.value(path).parse().unwrap_or_else(|_| panic!("{path}: {}", self.value(path)))
    }

    fn read(text: &str) -> Self {
        let (mut entries, mut keys) = (Vec::new(), Vec::<(usize, String)>::new());
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            assert!(!line.contains('\t'), "a tab: {line}");
            let content = line.trim_start();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let item = content.strip_prefix("- ");
            let indent = line.len() - item.unwrap_or(content).len();
            // A list may be as deep as its key, but what is in it is deeper.
            keys.retain(|(of_key, _)| *of_key < indent);
            let Some((key, value)) = item.unwrap_or(content).split_once(':') else {
                let item = item.unwrap_or_else(|| panic!("neither a key nor an item: {line}"));
                entries.push((joined(&keys), item.to_owned()));
                continue;
            };
            keys.push((indent, key.to_owned()));
            match value.trim() {
                "" => {}
                "|" => entries.push((joined(&keys), block(&mut lines, indent + 2))),
                value => entries.push((joined(&keys), value.to_owned())),
            }
        }
        Self(entries)
    }
}

/// The lines of a text that is indented so far.
fn block<'t>(lines: &mut Peekable<impl Iterator<Item = &'t str>>, indent: usize) -> String {
    let start = " ".repeat(indent);
    let mut text = String::new();
    while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with(&start)) {
        text += line.get(indent..).unwrap_or_default();
        text.push('\n');
    }
    text
}

fn joined(keys: &[(usize, String)]) -> String {
    keys.iter().map(|(_, key)| key.as_str()).collect::<Vec<_>>().join(".")
}

#[test]
fn paths_and_values_are_found() {
    let first =
        "a:\n  b: 1\n  c:\n    - d: x\n      e: y\n    - d: z\n  f: |\n    g = [\n\n      h\n";
    let text = format!("# A comment.\n---\n{first}list:\n  - one\n  - two\n---\na: 2\n");
    let [one, two] = &Document::all(&text)[..] else { panic!("two documents") };
    assert_eq!(one.number("a.b"), 1);
    assert_eq!(one.values("a.c.d"), ["x", "z"]);
    assert_eq!(one.value("a.c.e"), "y");
    assert_eq!(one.value("a.f"), "g = [\n\n  h\n");
    assert_eq!(one.values("list"), ["one", "two"]);
    assert_eq!(two.value("a"), "2");
}
