//! Files that change as editors and Kubernetes change them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::time::timeout;

use super::{Cause, WatchedFile, changed, watch};

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Longer than anything takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Long enough for what should not happen to happen.
const WHILE: Duration = Duration::from_millis(400);

/// A directory that goes with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("slidegate-{test}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(fs::canonicalize(path).unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write(&self, name: &str, contents: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, contents).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

async fn watched(path: &Path) -> WatchedFile {
    let mut file = WatchedFile::new(path.to_owned(), 1024, None);
    file.has_changed().await;
    file
}

async fn seen(file: &mut WatchedFile) {
    timeout(TIMEOUT, changed(&mut [file], POLL_INTERVAL)).await.expect("the change is seen");
}

async fn quiet(file: &mut WatchedFile) {
    assert!(
        timeout(WHILE, changed(&mut [file], POLL_INTERVAL)).await.is_err(),
        "nothing has changed"
    );
}

#[tokio::test]
async fn a_file_that_is_renamed_over_it_is_seen_every_time() {
    let directory = Directory::new("rename");
    let path = directory.write("config.toml", "a = 1");
    let mut file = watched(&path).await;
    for contents in ["a = 2", "a = 3"] {
        let new = directory.write(".config.toml.swp", contents);
        fs::rename(new, &path).unwrap();
        seen(&mut file).await;
    }
    quiet(&mut file).await;
}

#[tokio::test]
async fn a_write_in_place_is_seen_and_the_same_contents_are_no_change() {
    let directory = Directory::new("in-place");
    let path = directory.write("config.toml", "a = 1");
    let mut file = watched(&path).await;
    directory.write("config.toml", "a = 2");
    seen(&mut file).await;
    directory.write("config.toml", "a = 2");
    directory.write("another.toml", "a = 3");
    quiet(&mut file).await;
}

#[tokio::test]
async fn a_burst_is_one_change() {
    let directory = Directory::new("burst");
    let path = directory.write("config.toml", "a = 1");
    let mut file = watched(&path).await;
    for i in 0..100 {
        directory.write("config.toml", &format!("a = {i}"));
    }
    seen(&mut file).await;
    quiet(&mut file).await;
}

#[tokio::test]
async fn a_file_that_goes_and_comes_back_is_seen_when_it_is_back() {
    let directory = Directory::new("gone");
    let path = directory.write("config.toml", "a = 1");
    let mut file = watched(&path).await;
    fs::remove_file(&path).unwrap();
    quiet(&mut file).await;
    directory.write("config.toml", "a = 2");
    seen(&mut file).await;
}

/// As the kubelet does it: the file is a link into `..data`, which is a link to a directory with a
/// date; a new directory is made, a new link renamed over `..data`, and the old directory removed.
fn swap(directory: &Directory, date: &str, contents: &str) {
    let old = fs::read_link(directory.path("..data")).ok();
    fs::create_dir(directory.path(date)).unwrap();
    directory.write(&format!("{date}/config.toml"), contents);
    symlink(date, directory.path("..data_tmp")).unwrap();
    fs::rename(directory.path("..data_tmp"), directory.path("..data")).unwrap();
    if let Some(old) = old {
        fs::remove_dir_all(directory.0.join(old)).unwrap();
    }
}

#[tokio::test]
async fn a_link_that_is_swapped_as_kubernetes_does_is_seen_every_time() {
    let directory = Directory::new("kubernetes");
    swap(&directory, "..2026_01", "a = 1");
    symlink("..data/config.toml", directory.path("config.toml")).unwrap();
    let mut file = watched(&directory.path("config.toml")).await;
    for (date, contents) in [("..2026_02", "a = 2"), ("..2026_03", "a = 3")] {
        swap(&directory, date, contents);
        seen(&mut file).await;
    }
    swap(&directory, "..2026_04", "a = 3");
    quiet(&mut file).await;
    directory.write("..2026_04/config.toml", "a = 4");
    seen(&mut file).await;
}

#[tokio::test]
async fn a_link_that_is_swapped_is_seen_within_two_seconds() {
    let directory = Directory::new("two-seconds");
    swap(&directory, "..2026_01", "a = 1");
    symlink("..data/config.toml", directory.path("config.toml")).unwrap();
    let mut file = watched(&directory.path("config.toml")).await;
    let every = super::POLL_INTERVAL;
    assert!(timeout(every * 3, changed(&mut [&mut file], every)).await.is_err(), "not yet");
    swap(&directory, "..2026_02", "a = 2");
    let seen = timeout(Duration::from_secs(2), changed(&mut [&mut file], every)).await;
    assert!(seen.is_ok(), "it is seen in time");
}

#[tokio::test]
async fn a_file_that_is_never_at_rest_is_read_all_the_same() {
    let directory = Directory::new("restless");
    let path = directory.write("config.toml", "a = 1");
    let mut file = watched(&path).await;
    let polls = async {
        for i in 0.. {
            directory.write("config.toml", &format!("a = {i}"));
            if file.poll().await {
                return i;
            }
        }
        unreachable!("a change is seen first")
    };
    assert!(timeout(TIMEOUT, polls).await.expect("it is read") < 20);
}

#[tokio::test]
async fn sighup_always_asks_for_a_reload_and_is_distinguished_from_a_change() {
    let directory = Directory::new("signal");
    let path = directory.write("config.toml", "a = 1");
    let mut changes = watch(Some(path)).await.unwrap();
    let mut without_file = watch(None).await.unwrap();
    // The shell has it built in; the program of the same name is not on every machine.
    let signal = format!("kill -HUP {}", std::process::id());
    assert!(Command::new("sh").args(["-c", &signal]).status().unwrap().success());
    assert_eq!(timeout(TIMEOUT, changes.next()).await, Ok(Cause::Signal));
    assert_eq!(timeout(TIMEOUT, without_file.next()).await, Ok(Cause::Signal));
    directory.write("config.toml", "a = 2");
    assert_eq!(timeout(TIMEOUT, changes.next()).await, Ok(Cause::File));
}
