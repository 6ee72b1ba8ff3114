//! The directories whose entries decide what a path means.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// As many links as the kernel follows.
const MOST_LINKS: usize = 40;

/// The directory of the file, and that of every link on the way to it. As far as the path leads: if
/// it leads nowhere yet, the last directory that there is.
pub(super) fn directories_of(path: &Path) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    let Ok(path) = std::path::absolute(path) else { return directories };
    let (mut place, mut left) = (PathBuf::new(), Vec::new());
    let mut links = 0;
    push(&mut left, &path);
    while let Some(name) = left.pop() {
        let next = match name.to_str() {
            Some("..") => {
                place.pop();
                continue;
            }
            _ => place.join(&name),
        };
        match fs::read_link(&next) {
            Ok(target) if links < MOST_LINKS => {
                links += 1;
                directories.insert(place.clone());
                push(&mut left, &target);
            }
            _ if next.is_dir() => place = next,
            _ => break,
        }
    }
    directories.insert(place);
    directories
}

/// Puts a path's parts before those that are left, the next one last. A root starts over: joining
/// it replaces what is there.
fn push(left: &mut Vec<OsString>, path: &Path) {
    let parts = path.components().filter(|part| *part != Component::CurDir);
    let parts: Vec<OsString> = parts.map(|part| part.as_os_str().to_owned()).collect();
    left.extend(parts.into_iter().rev());
}
