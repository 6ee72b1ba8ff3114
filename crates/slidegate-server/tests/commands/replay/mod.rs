//! `slidegate replay`, seen from outside.

mod command;
mod formats;
mod logs;
mod model;
mod page;
mod responses;

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;
use slidegate_testbed::Directory;

use crate::slidegate;

/// Files to replay, which disappear in the end.
struct Files(Directory);

impl Files {
    fn new() -> Self {
        Self(Directory::new())
    }

    /// With a configuration, as `candidate.toml`.
    fn with_config(config: &str) -> Self {
        let files = Self::new();
        files.write("candidate.toml", config.as_bytes());
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) {
        fs::write(self.path(name), contents).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Runs `slidegate replay --config candidate.toml` here.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = slidegate(&["replay", "--config", "candidate.toml"]);
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// The text of a run that ends well.
    #[track_caller]
    fn text(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert_eq!(stderr, "", "no progress where there is no terminal");
        String::from_utf8(output.stdout).unwrap()
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[&["--json"], arguments].concat())).unwrap()
    }

    /// What a run says that fails with this code.
    #[track_caller]
    fn failure(&self, code: i32, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

/// One request a minute for each address.
const ONE_A_MINUTE: &str = "[[policy]]\nname = \"api\"\nquotas = [\"1/min\"]\n";

/// A line of the combined format, at a second of a minute.
fn combined(client: &str, second: u32, request: &str) -> String {
    format!(
        "{client} - - [10/Oct/2026:13:{:02}:{:02} +0000] \"{request}\" 200 12 \"-\" \"curl/8.5\"\n",
        second / 60,
        second % 60
    )
}

/// Requests for `/` of one client at these seconds.
fn log_at(client: &str, seconds: &[u32]) -> String {
    seconds.iter().map(|second| combined(client, *second, "GET / HTTP/1.1")).collect()
}
