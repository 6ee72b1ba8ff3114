//! Which paths a policy is about.

use std::borrow::Cow;

use matchit::Router;
use percent_encoding::percent_decode;

use crate::policy::path_pattern::{Pattern, insert};
use crate::policy::path_reading::{PathReading, PathReadings};
use crate::policy::path_router::PatternSet;

/// A set of path patterns such as `/users/{id}` and `/static/{*rest}`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths {
    /// As they were written.
    pub(crate) patterns: Vec<String>,
    /// In the normal form of [`PathReading`].
    normal: PatternSet<()>,
    /// With their own letter case and slashes at the end, for exemptions.
    exact: PatternSet<()>,
}

impl PartialEq for Paths {
    fn eq(&self, other: &Self) -> bool {
        self.patterns == other.patterns
    }
}

impl Paths {
    pub(crate) fn is_empty(&self) -> bool {
        self.patterns.is_empty()
    }

    /// Brings all patterns to the form in which they are matched, and tells what is wrong with which
    /// of them.
    pub(crate) fn compile(&mut self, reading: PathReading) -> Vec<(String, String)> {
        (self.normal, self.exact) = (PatternSet::default(), PatternSet::default());
        // Patterns that one router does not take together are a mistake.
        let (mut normal, mut exact) = (Router::new(), Router::new());
        let mut problems = Vec::new();
        for written in &self.patterns {
            let inserted = Pattern::parse(written, reading).and_then(|pattern| {
                insert(&mut exact, &pattern.exact)?;
                insert(&mut normal, &pattern.normal)?;
                Ok(pattern)
            });
            match inserted {
                Ok(pattern) => {
                    self.exact.entry(&pattern.exact);
                    self.normal.entry(&pattern.normal);
                }
                Err(problem) => problems.push((written.clone(), problem)),
            }
        }
        problems
    }

    /// Whether any reading of a path is in the set.
    pub(crate) fn contain_any(&self, path: &PathReadings<'_>) -> bool {
        path.iter().any(|path| self.normal.has(path))
    }

    /// Whether every reading of a path is in the set, and it was sent as the pattern is written.
    pub(crate) fn contain_all(&self, path: &PathReadings<'_>) -> bool {
        // Patterns have no slash at the end in their normal form.
        let bare = |path: &str| match path.strip_suffix('/') {
            Some(bare) if !bare.is_empty() => bare.len(),
            _ => path.len(),
        };
        self.exact.has(path.sent)
            && path.iter().all(|path| self.normal.has(&path[..bare(path)]))
            && path.is_complete
            && has_one_meaning(path.sent)
    }
}

/// Whether a path leads to the same place for every server, whatever it takes for a separator, a
/// parameter or a dot, and however often it decodes the path. No other path is exempt.
pub(crate) fn has_one_meaning(path: &str) -> bool {
    let Some(decoded) = decode_all(path.as_bytes()) else { return false };
    // To decoders that do not check, `%c0%af` is a slash and `%c0%ae` a dot.
    if std::str::from_utf8(&decoded).is_err() {
        return false;
    }
    let slashes = |path: &[u8]| path.iter().filter(|byte| **byte == b'/').count();
    if slashes(&decoded) != slashes(path.as_bytes())
        || decoded.iter().any(|byte| byte.is_ascii_control() || *byte == b'\\')
    {
        return false;
    }
    let Some(rest) = decoded.strip_prefix(b"/") else { return false };
    let rest = rest.strip_suffix(b"/").unwrap_or(rest);
    if rest.is_empty() {
        return decoded.len() == 1;
    }
    rest.split(|byte| *byte == b'/').all(|segment| {
        let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
        !matches!(name, b"" | b"." | b"..")
            && name.trim_ascii() == name
            && segment.trim_ascii() == segment
    })
}

/// A path without any percent-encoding, however often it is encoded. None if that is more often than
/// anybody has reason to, which also bounds the work.
fn decode_all(path: &[u8]) -> Option<Cow<'_, [u8]>> {
    const MAX_TIMES: usize = 4;
    let mut path = Cow::Borrowed(path);
    for _ in 0..MAX_TIMES {
        match percent_decode(&path).into() {
            Cow::Borrowed(_) => return Some(path),
            Cow::Owned(decoded) => path = Cow::Owned(decoded),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_that_all_servers_read_alike_has_one_meaning() {
        for path in [
            "/",
            "/healthz",
            "/static/",
            "/static/app.js",
            "/static/my%20file.pdf",
            "/static/100%25.png",
            "/static/a;v=1/b",
            "/.well-known/x",
            "/a...b/..c",
            "/%c3%a9",
        ] {
            assert!(has_one_meaning(path), "{path}");
        }
        for path in [
            "/static/../login",
            "/static/./login",
            "/static//login",
            "//login",
            "//",
            "*",
            "/static/..;/login",
            "/static/..;x=1/login",
            "/static/%2e%2e/login",
            "/static/%2e./login",
            "/static/%252e%252e/login",
            "/static/%25252e./login",
            "/static/%2525252525252e./login",
            "/static/..%2flogin",
            "/static/x%2fy",
            "/static/x%252fy",
            "/static\\..\\login",
            "/static/..%5clogin",
            "/static/..%20/login",
            "/static/x%20",
            "/static/%20x",
            "/static/x%20;y",
            "/static/x%00",
            "/static/..%00/login",
            "/static/%0d%0a",
            "/static/;x/login",
            "/static/..%3b/login",
            "/static/..%c0%af..%c0%aflogin",
            "/static/%c0%ae%c0%ae/login",
            "/static/%25c0%25ae%C0%AE/login",
            "/static/%ff",
        ] {
            assert!(!has_one_meaning(path), "{path}");
        }
    }
}
