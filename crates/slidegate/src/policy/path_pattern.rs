//! A pattern of paths, in the form in which it is matched.

use matchit::{InsertError, Router};

use crate::policy::bad_request::has_control_character;
use crate::policy::path_reading::PathReading;

/// A pattern such as `/users/{id}` or `/static/{*rest}`.
#[derive(Debug)]
pub(crate) struct Pattern {
    /// In the normal form of paths, with small letters if case is ignored.
    pub(crate) normal: String,
    /// As the path is sent, with its own letter case and slash at the end.
    pub(crate) exact: String,
}

impl Pattern {
    /// Brings a pattern to the normal form. One that no path matches is an error, with the spelling
    /// that was probably meant.
    pub(crate) fn parse(written: &str, reading: PathReading) -> Result<Self, String> {
        if !written.starts_with('/') {
            return Err("expected a path that starts with /, such as /users/{id}".to_owned());
        }
        if let Some(problem) = foreign_syntax(written) {
            return Err(problem);
        }
        insert(&mut Router::new(), written)?;
        if let Some((path, _)) = written.split_once(['?', '#']) {
            let what = "paths are matched without query and fragment";
            return Err(format!("{what}: did you mean {path:?}?"));
        }
        let exact = encoded(written, reading.matching_case());
        if has_control_character(&exact) {
            return Err("requests with a control character in their path are refused".to_owned());
        }
        if let Some(meant) = without_detours(&exact) {
            let what = "paths are matched without empty segments and dots";
            return Err(format!("{what}: did you mean {meant:?}?"));
        }
        let normal = encoded(written, reading);
        let normal = match normal.trim_end_matches('/') {
            "" => "/".to_owned(),
            normal => normal.to_owned(),
        };
        Ok(Self { normal, exact })
    }
}

/// Adds a pattern to a router. It may be there already, in another spelling.
pub(crate) fn insert(router: &mut Router<()>, pattern: &str) -> Result<(), String> {
    match router.insert(pattern, ()) {
        Err(InsertError::Conflict { with }) if with == pattern => Ok(()),
        inserted => inserted.map_err(|error| {
            format!(
                "{error}; expected a pattern such as /login, /users/{{id}} or /static/{{*rest}}"
            )
        }),
    }
}

/// The pattern with its percent-encoding in the normal form, but for what is in braces.
fn encoded(pattern: &str, reading: PathReading) -> String {
    let (mut text, mut rest) = (String::with_capacity(pattern.len()), pattern);
    while let Some(at) = rest.find(['{', '}']) {
        text += &reading.decode(&rest[..at]);
        rest = &rest[at..];
        // Two braces are one that is meant.
        let (token, length) = match rest.get(..2) {
            Some("{{") => ("%7B", 2),
            Some("}}") => ("%7D", 2),
            _ => {
                let end = rest.find('}').map_or(rest.len(), |end| end + 1);
                (&rest[..end], end)
            }
        };
        text += token;
        rest = &rest[length..];
    }
    text + &reading.decode(rest)
}

/// The pattern without empty segments and dots, if it has any. A slash at the end is no detour.
fn without_detours(pattern: &str) -> Option<String> {
    let segments: Vec<&str> = pattern[1..].split('/').collect();
    let (last, inner) = segments.split_last()?;
    let is_dots = |segment: &&str| matches!(*segment, "." | "..");
    if !is_dots(last) && !inner.iter().any(|segment| segment.is_empty() || is_dots(segment)) {
        return None;
    }
    let mut meant = Vec::new();
    for segment in segments {
        match segment {
            "" | "." => {}
            ".." => drop(meant.pop()),
            segment => meant.push(segment),
        }
    }
    Some(format!("/{}", meant.join("/")))
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

    fn parse(pattern: &str) -> Result<Pattern, String> {
        Pattern::parse(pattern, PathReading::default())
    }

    #[test]
    fn patterns_have_the_normal_form_of_paths() {
        for (written, normal, exact) in [
            ("/login", "/login", "/login"),
            ("/Login/", "/login", "/Login/"),
            ("/", "/", "/"),
            ("/caf\u{e9}", "/caf%C3%A9", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%C3%A9", "/caf%C3%A9"),
            ("/a b", "/a%20b", "/a%20b"),
            ("/%6cogin", "/login", "/login"),
            ("/v1/{Name}:Batch", "/v1/{Name}:batch", "/v1/{Name}:Batch"),
            ("/v1/{name}%3Abatch", "/v1/{name}:batch", "/v1/{name}:batch"),
            ("/a%2fb", "/a%2Fb", "/a%2Fb"),
            ("/a/{{x}}", "/a/%7Bx%7D", "/a/%7Bx%7D"),
            ("/100%", "/100%25", "/100%25"),
        ] {
            let pattern = parse(written).unwrap();
            assert_eq!((&*pattern.normal, &*pattern.exact), (normal, exact), "{written}");
        }
    }

    #[test]
    fn a_pattern_that_no_path_matches_is_an_error_with_one_that_does() {
        for (pattern, meant) in [
            ("/a/../b", "/b"),
            ("/a/./b", "/a/b"),
            ("/a/%2e%2E/b/", "/b"),
            ("//a", "/a"),
            ("/a//", "/a"),
            ("/a//{id}", "/a/{id}"),
            ("/a/..", "/"),
            ("/login?next=/", "/login"),
            ("/login#x", "/login"),
        ] {
            let problem = parse(pattern).unwrap_err();
            assert!(problem.ends_with(&format!("did you mean {meant:?}?")), "{pattern}: {problem}");
            parse(meant).unwrap();
        }
        for pattern in ["login", "", "/a%00", "/a\nb"] {
            parse(pattern).unwrap_err();
        }
    }

    #[test]
    fn syntax_of_other_routers_is_translated() {
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
            let problem = parse(pattern).unwrap_err();
            assert!(problem.ends_with(&format!("did you mean {meant:?}?")), "{pattern}: {problem}");
            parse(meant).unwrap();
        }
        for pattern in ["/:", "/a*b/*.js", "/:id*/x", "/{a}*"] {
            let problem = parse(pattern).unwrap_err();
            assert!(problem.starts_with("* and : are no wildcards"), "{pattern}: {problem}");
        }
    }

    #[test]
    fn colons_that_are_part_of_a_path_stay_so() {
        for pattern in ["/jobs/7:cancel", "/v1/{name}:batch", "/static/{*rest}", "/a/{id}"] {
            assert_eq!(parse(pattern).unwrap().exact, pattern);
        }
    }
}
