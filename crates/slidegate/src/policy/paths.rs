//! Which paths a policy is about.

use std::borrow::Cow;

use matchit::Router;
use percent_encoding::percent_decode;

/// A set of path patterns such as `/users/{id}` and `/static/{*rest}`.
#[derive(Debug, Clone, Default)]
pub(crate) struct Paths {
    /// As they were written.
    pub(crate) patterns: Vec<String>,
    router: Router<()>,
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

    pub(crate) fn insert(&mut self, pattern: &str) -> Result<(), String> {
        if !pattern.starts_with('/') {
            return Err("expected a path that starts with /, such as /users/{id}".to_owned());
        }
        if let Some(problem) = foreign_syntax(pattern) {
            return Err(problem);
        }
        self.router.insert(pattern, ()).map_err(|error| {
            format!(
                "{error}; expected a pattern such as /login, /users/{{id}} or /static/{{*rest}}"
            )
        })?;
        self.patterns.push(pattern.to_owned());
        Ok(())
    }

    pub(crate) fn contains(&self, path: &str) -> bool {
        self.router.at(path).is_ok()
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
    const MOST_TIMES: usize = 4;
    let mut path = Cow::Borrowed(path);
    for _ in 0..MOST_TIMES {
        match percent_decode(&path).into() {
            Cow::Borrowed(_) => return Some(path),
            Cow::Owned(decoded) => path = Cow::Owned(decoded),
        }
    }
    None
}

/// What is wrong with a pattern in the syntax of other routers. It would match only a request whose
/// path has the star or the colon in it, so the policy would limit nothing.
fn foreign_syntax(pattern: &str) -> Option<String> {
    let segments: Vec<&str> = pattern.split('/').collect();
    if !segments.iter().any(|segment| is_foreign(segment)) {
        return None;
    }
    let last = segments.len() - 1;
    let meant: Vec<String> =
        segments.iter().enumerate().map(|(i, segment)| translated(segment, i, i == last)).collect();
    let meant = meant.join("/");
    let is_good = Router::new().insert(&meant, ()).is_ok();
    let what = "* and : are no wildcards here";
    Some(match is_good {
        true => format!("{what}: did you mean {meant:?}?"),
        false => format!("{what}: expected {{name}} for one segment, or {{*rest}} at the end"),
    })
}

/// A star outside braces, or a segment that begins with a colon. A colon further on, as in
/// `/jobs/7:cancel`, is an ordinary character.
fn is_foreign(segment: &str) -> bool {
    let mut depth = 0_i32;
    let mut has_star = false;
    for byte in segment.bytes() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'*' => has_star |= depth <= 0,
            _ => {}
        }
    }
    segment.starts_with(':') || has_star
}

fn translated(segment: &str, index: usize, is_last: bool) -> String {
    match segment.strip_prefix(':') {
        Some(name) if !name.is_empty() => {
            // A star after a name, as in `:path*`, is the rest of the path.
            match name.strip_suffix('*') {
                Some(name) => format!("{{*{name}}}"),
                None => format!("{{{name}}}"),
            }
        }
        _ if !is_foreign(segment) => segment.to_owned(),
        _ if is_last => segment.trim_end_matches('*').to_owned() + "{*rest}",
        _ => format!("{{segment{index}}}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_path_that_nobody_reads_otherwise_has_one_meaning() {
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

    #[test]
    fn the_syntax_of_other_routers_is_translated() {
        for (pattern, meant) in [
            ("/api/*", "/api/{*rest}"),
            ("/api/**", "/api/{*rest}"),
            ("/*", "/{*rest}"),
            ("/users/:id", "/users/{id}"),
            ("/users/:id/posts/:post", "/users/{id}/posts/{post}"),
            ("/files/:path*", "/files/{*path}"),
            ("/users/*/posts", "/users/{segment2}/posts"),
            ("/users/{id}/*", "/users/{id}/{*rest}"),
        ] {
            let problem = Paths::default().insert(pattern).unwrap_err();
            assert!(problem.ends_with(&format!("did you mean {meant:?}?")), "{pattern}: {problem}");
            Paths::default().insert(meant).unwrap();
        }
        for pattern in ["/:", "/a*b/*.js", "/:id*/x", "/{a}*"] {
            let problem = Paths::default().insert(pattern).unwrap_err();
            assert!(problem.starts_with("* and : are no wildcards"), "{pattern}: {problem}");
        }
    }

    #[test]
    fn colons_that_are_part_of_a_path_stay_so() {
        for pattern in ["/jobs/7:cancel", "/v1/{name}:batch", "/static/{*rest}", "/a/{id}"] {
            assert_eq!(Paths::default().insert(pattern), Ok(()), "{pattern}");
        }
    }
}
