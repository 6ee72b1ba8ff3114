//! The JSON Schema as editors use it: with the real taplo.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use slidegate_testbed::{Directory, tool};

use crate::PROGRAM;

/// A directory with what `slidegate schema` prints.
struct Editor(Directory);

impl Editor {
    fn new() -> Self {
        let directory = Directory::new();
        let output = Command::new(PROGRAM).arg("schema").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        directory.write("slidegate.schema.json", str::from_utf8(&output.stdout).unwrap());
        Self(directory)
    }

    fn taplo(&self, arguments: &[&str], files: &[PathBuf]) -> Output {
        let mut taplo = Command::new(tool("bin/taplo"));
        taplo.args(["check", "--no-auto-config", "--colors", "never"]).args(arguments);
        taplo.args(files).current_dir(self.0.path()).env_remove("RUST_LOG").output().unwrap()
    }

    /// Checks files by the schema, whichever they name.
    fn check(&self, files: &[PathBuf]) -> Output {
        let schema = self.0.file("slidegate.schema.json");
        self.taplo(&["--schema", &format!("file://{}", schema.display())], files)
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All files below a folder that are configurations.
fn configurations(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => configurations(&path),
        false => vec![path],
    });
    let is_configuration = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.ends_with(".toml") && !name.ends_with(".test.toml") && name != "Cargo.toml"
    };
    found.filter(is_configuration).collect()
}

/// The blocks of TOML of all pages and of the clients' READMEs, as files; those of `policy-tests.md` are
/// cases.
fn blocks(directory: &Directory) -> Vec<PathBuf> {
    let docs = fs::read_dir(repository().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let pages = pages.filter(|path| !path.ends_with("policy-tests.md"));
    let readmes = ["", "clients/go", "clients/node", "clients/python"];
    let readmes = readmes.map(|folder| repository().join(folder).join("README.md"));
    let mut files = Vec::new();
    for (page_index, page) in pages.chain(readmes).enumerate() {
        let text = fs::read_to_string(&page).unwrap();
        for (i, block) in text.split("```toml\n").skip(1).enumerate() {
            let stem = page.file_stem().unwrap().to_str().unwrap();
            let name = format!("{stem}-{page_index}-{i}.toml");
            files.push(directory.write(&name, block.split("```").next().unwrap()));
        }
    }
    files
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "PyPI has taplo for Linux on x86-64 only")]
fn all_toml_of_docs_examples_and_packaging_is_good_for_taplo() {
    let editor = Editor::new();
    let mut files = blocks(&editor.0);
    for folder in ["examples", "packaging"] {
        files.extend(configurations(&repository().join(folder)));
    }
    assert!(files.len() > 50, "{files:?}");
    let output = editor.check(&files);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&format!("total={}", files.len())), "{said}");
}

#[test]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "PyPI has taplo for Linux on x86-64 only")]
fn taplo_marks_mistakes_in_a_file_that_names_the_schema() {
    let editor = Editor::new();
    for (line, expected) in [
        ("quota = \"10/min\"", "'quota' was unexpected"),
        ("quotas = \"10/mn\"", "\"10/mn\" does not match"),
        ("quotas = [\"10/min\", \"5\"]", "\"5\" does not match"),
        ("quotas = \"10/min\"\nscope = \"global\"", "\"global\" is not one of"),
        ("quotas = \"10/min\"\ncost = 0", "0 is not valid under any"),
        ("quotas = \"10/min\"", ""),
    ] {
        let text = format!("#:schema ./slidegate.schema.json\n[[policy]]\nname = \"a\"\n{line}\n");
        let output = editor.taplo(&[], &[editor.0.write("slidegate.toml", &text)]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.success(), expected.is_empty(), "{line}: {said}");
        assert!(said.contains(expected), "{line}: {said}");
    }
}
