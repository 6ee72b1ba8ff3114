//! Paths at random, beside models of servers that share no code with what they check.

use std::collections::BTreeSet;

use http::Method;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use slidegate::policy::PathReading;
use slidegate::{AccessList, Facts, Policies, Policy};

/// A byte of a decoded path, and whether it is written in percent-encoding.
type Unit = (u8, bool);

fn decoded(path: &[u8]) -> Vec<Unit> {
    let (mut units, mut at) = (Vec::new(), 0);
    while at < path.len() {
        let digits = path.get(at + 1..at + 3).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        let (byte, length) = match digits {
            Some(digits) if path[at] == b'%' => {
                let digits = std::str::from_utf8(digits).unwrap();
                (u8::from_str_radix(digits, 16).unwrap(), 3)
            }
            _ => (path[at], 1),
        };
        let is_slash = byte == b'/' && length == 1;
        let is_ordinary = byte.is_ascii_alphanumeric() || b"-._~:@!$&'()*+,;=".contains(&byte);
        units.push((byte, !is_slash && !is_ordinary));
        at += length;
    }
    units
}

fn written(units: &[Unit]) -> String {
    units
        .iter()
        .map(|(byte, encoded)| match encoded {
            true => format!("%{byte:02X}"),
            false => char::from(*byte).to_string(),
        })
        .collect()
}

/// What servers do to a path whose bytes are of this kind.
fn steps<T: Copy + PartialEq>(
    path: &[T],
    is: impl Fn(T, &[u8]) -> bool,
    slash: T,
    decode_slashes: impl Fn(&[T]) -> Vec<T>,
) -> [Vec<T>; 7] {
    let split = || path[1..].split(|unit| *unit == slash);
    let join = |segments: Vec<&[T]>| {
        let joined: Vec<T> =
            segments.iter().flat_map(|s| std::iter::once(slash).chain(s.iter().copied())).collect();
        if joined.is_empty() { vec![slash] } else { joined }
    };
    let merged = join(split().filter(|segment| !segment.is_empty()).collect());
    let mut resolved: Vec<&[T]> = Vec::new();
    for segment in split() {
        match segment {
            [dot] if is(*dot, b".") => {}
            [one, two] if is(*one, b".") && is(*two, b".") => drop(resolved.pop()),
            segment => resolved.push(segment),
        }
    }
    let cut = split().map(|segment| segment.split(|unit| is(*unit, b";")).next().unwrap());
    let trimmed = split().map(|segment| {
        let length = segment.iter().rposition(|unit| !is(*unit, b" ")).map_or(0, |last| last + 1);
        &segment[..length]
    });
    let backslashed = path.iter().map(|unit| if is(*unit, b"\\") { slash } else { *unit });
    [
        merged,
        join(resolved),
        join(cut.collect()),
        join(trimmed.collect()),
        path.split(|unit| is(*unit, b"#?")).next().unwrap().to_vec(),
        backslashed.collect(),
        decode_slashes(path),
    ]
}

/// Every path that a chain of servers ends up with that take any of the steps, in the normal form.
fn model(path: &str) -> BTreeSet<String> {
    let sent = path.split('?').next().unwrap().to_ascii_lowercase().into_bytes();
    let raw = closure([sent], |path| {
        let decode = |path: &[u8]| {
            let text = String::from_utf8(path.to_vec()).unwrap();
            text.replace("%2f", "/").into_bytes()
        };
        steps(path, |byte, set| set.contains(&byte), b'/', decode)
    });
    let fold =
        |(byte, encoded): Unit| (if encoded { byte } else { byte.to_ascii_lowercase() }, encoded);
    let start = raw.iter().map(|path| decoded(path).into_iter().map(fold).collect());
    let all = closure(start, |path| {
        let decode = |path: &[Unit]| {
            path.iter().map(|unit| if unit.0 == b'/' { (b'/', false) } else { *unit }).collect()
        };
        steps(path, |(byte, _), set| set.contains(&byte), (b'/', false), decode)
    });
    all.iter().map(|units| written(units)).collect()
}

fn closure<T: Clone + Ord>(
    start: impl IntoIterator<Item = Vec<T>>,
    step: impl Fn(&[T]) -> [Vec<T>; 7],
) -> BTreeSet<Vec<T>> {
    let mut known: BTreeSet<Vec<T>> = start.into_iter().collect();
    let mut new: Vec<Vec<T>> = known.iter().cloned().collect();
    while let Some(path) = new.pop() {
        new.extend(step(&path).into_iter().filter(|read| known.insert(read.clone())));
    }
    known
}

/// Paths of what servers differ in.
fn odd_path() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "/", "/", "/", "a", "B", "login", "LOGIN", "%6cogin", "api", ".", "..", "/..", "/../",
        "%2e", "%2E%2e", ";", ";x=1", "%3b", "%20", " ", "%2f", "%2F", "\\", "%5c", "%5C", "#",
        "#x", "%23", "%3f", "%", "%25", "%252f", "é", "%c3%a9", "\"", "{", "?",
    ]);
    prop::collection::vec(piece, 0..9).prop_map(|pieces| format!("/{}", pieces.concat()))
}

/// A detour to `/api/login`: its own pieces, with what servers drop between them.
fn detour() -> impl Strategy<Value = String> {
    let noise = || {
        prop::sample::select(vec![
            "",
            "",
            "",
            "/",
            "/.",
            "/x/..",
            "/x/%2e%2e",
            ";y",
            "%3by",
            "%20",
            "/..;",
            "/x%2f..",
            "\\x\\..",
            "%5cx%5c..",
            "//..",
            "/..",
            "/x%2fy/..",
            "/x%5cy\\..",
            "/%2e",
            "#",
            "/;z",
        ])
    };
    let slash = || prop::sample::select(vec!["/", "/", "//", "%2f", "%2F", "\\", "%5c"]);
    let api = prop::sample::select(vec!["api", "API", "%61pi", "a%50i"]);
    let login = prop::sample::select(vec!["login", "Login", "%6cogin", "log%49n"]);
    let end =
        prop::sample::select(vec!["", "", "/", "#x", "?x", "/x/..", ";y", "%20", "%2f", "\\"]);
    (noise(), slash(), api, noise(), slash(), login, noise(), end).prop_map(
        |(first, slash1, api, second, slash2, login, third, end)| {
            let path = format!("{first}{slash1}{api}{second}{slash2}{login}{third}{end}");
            if path.starts_with('/') { path } else { format!("/{path}") }
        },
    )
}

/// What a server does, in words, and what it makes of a path.
type Server = (&'static str, fn(&str) -> String);

/// Servers as they are: each reads a path from beginning to end in one order.
const SERVERS: [Server; 12] = [
    ("as it came", str::to_owned),
    ("decodes, then resolves", |path| resolved(&merged(&percent_decoded(path)))),
    ("resolves, then decodes", |path| percent_decoded(&resolved(&merged(path)))),
    ("resolves by RFC 3986, then decodes", |path| percent_decoded(&resolved(path))),
    ("decodes only", percent_decoded),
    ("decodes slashes, then resolves", |path| {
        resolved(&merged(&path.replace("%2F", "/").replace("%2f", "/")))
    }),
    ("cuts parameters, decodes, resolves", |path| resolved(&merged(&percent_decoded(&cut(path))))),
    ("decodes, cuts parameters, resolves", |path| resolved(&merged(&cut(&percent_decoded(path))))),
    ("resolves, cuts parameters", |path| cut(&resolved(path))),
    ("takes backslashes for slashes", |path| resolved(&path.replace('\\', "/"))),
    ("decodes, takes backslashes for slashes", |path| {
        resolved(&merged(&percent_decoded(path).replace('\\', "/")))
    }),
    ("trims names", |path| {
        let path = percent_decoded(path);
        resolved(&path.split('/').map(str::trim_end).collect::<Vec<_>>().join("/"))
    }),
];

/// Without query and fragment.
fn target(path: &str) -> &str {
    path.split(['?', '#']).next().unwrap()
}

fn percent_decoded(path: &str) -> String {
    let bytes: Vec<u8> = decoded(path.as_bytes()).into_iter().map(|(byte, _)| byte).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn merged(path: &str) -> String {
    let mut merged = path.to_owned();
    while merged.contains("//") {
        merged = merged.replace("//", "/");
    }
    merged
}

fn resolved(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.split('/').skip(1) {
        match segment {
            "." => {}
            ".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}

fn cut(path: &str) -> String {
    path.split('/').map(|s| s.split(';').next().unwrap()).collect::<Vec<_>>().join("/")
}

fn is_login(path: &str) -> bool {
    let path = path.strip_suffix('/').unwrap_or(path);
    path.eq_ignore_ascii_case("/api/login")
}

fn login() -> Policies {
    let policy = Policy::new("login").path("/api/login").quota("1/min");
    Policies::builder().policy(policy).build().unwrap()
}

/// Every combination of the steps, one behind another, is among the readings, and nothing else.
pub(crate) fn check_readings(path: &str) {
    let policies = Policies::default();
    let found = policies.other_paths(path);
    assert!(found.len() <= 64, "{path} has {} readings", found.len());
    if policies.check(&Facts::new(&Method::GET, path)).is_err() {
        return;
    }
    let mut expected = model(path);
    expected.remove(path.split('?').next().unwrap());
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected, "{path}");
}

/// No server takes a path for one that a policy is for, unless the policy is for it, or the
/// request is refused. Nor do two, the first of which passes on what it has made of the path.
pub(crate) fn check_servers(path: &str) {
    let policies = login();
    let facts = Facts::new(&Method::GET, path);
    if policies.matching(&facts).next().is_some() || policies.check(&facts).is_err() {
        return;
    }
    let uncut = path.split('?').next().unwrap();
    for (first, read) in SERVERS {
        for path in [target(path), uncut] {
            let read = read(path);
            assert!(!is_login(&read), "{path} is {read} to one that {first}");
        }
    }
    // The first has not decoded the path, or what it passes on would be encoded anew.
    for (first, proxy) in [SERVERS[0], SERVERS[5], SERVERS[8], SERVERS[9]] {
        for (second, server) in SERVERS {
            let passed = proxy(uncut);
            let read = server(target(&passed));
            assert!(!is_login(&read), "{path}: {first} and {second}: {passed}, {read}");
        }
    }
}

/// A path that begins with a slash has one normal form.
pub(crate) fn check_normal_form(path: &str) {
    let paths = PathReading::default();
    let read = paths.normal_form(path);
    assert_eq!(paths.normal_form(&read), read);
    assert_eq!(paths.read(path).normal_form(), read);
    assert!(read.starts_with('/') && !read.contains("//"), "{read}");
    assert!(read == "/" || !read.ends_with('/'), "{read}");
    assert!(read.split('/').all(|segment| segment != "." && segment != ".."), "{read}");
}

/// A path is exempt only if no server, whatever it does to it, ends up elsewhere.
pub(crate) fn check_exemption(path: &str) {
    let policies = Policies::builder()
        .exempt(AccessList::new().path("/static/{*rest}").path("/files/{name}"))
        .build()
        .unwrap();
    if policies.explain(&Facts::new(&Method::GET, path)).exempt.is_none() {
        return;
    }
    let is_static = |path: &[u8]| path.starts_with(b"/static/") && path.len() > 8;
    let is_file = |path: &[u8]| {
        let name = path.strip_prefix(b"/files/");
        name.is_some_and(|name| !name.is_empty() && !name.contains(&b'/'))
    };
    // What follows a question mark is the query, to everybody.
    let before_query = path.split('?').next().unwrap();
    for read in anybodys_readings(before_query.as_bytes()) {
        let read = if read.len() > 1 { read.strip_suffix(b"/").unwrap_or(&read) } else { &read };
        let shown = String::from_utf8_lossy(read);
        assert!(is_static(read) || is_file(read), "{path} is {shown}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        cases: 10_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_reading_is_thought_of(path in prop_oneof![odd_path(), detour()]) {
        check_readings(&path);
    }

    #[test]
    fn no_server_is_reached_around_a_policy(path in prop_oneof![odd_path(), detour()]) {
        check_servers(&path);
    }

    /// A path has few readings, or it is refused.
    #[test]
    fn readings_are_bounded(path in prop::collection::vec(odd_path(), 0..20)) {
        let path = format!("/{}", path.concat());
        prop_assert!(Policies::default().other_paths(&path).len() <= 64);
    }

    #[test]
    fn every_path_has_one_normal_form(path in odd_path()) {
        check_normal_form(&path);
    }

    #[test]
    fn no_exempt_path_leads_elsewhere(path in leaving_path()) {
        check_exemption(&path);
    }
}

/// Paths that are exempt or nearly so.
fn leaving_path() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a",
        "b.c",
        "/",
        "/",
        ".",
        "..",
        "/..",
        "../",
        ";",
        ";x=1",
        "%3b",
        "%20",
        " ",
        "%2e",
        "%2E%2e",
        "%252e",
        "%25252e",
        "%2f",
        "%252f",
        "\\",
        "%5c",
        "%255C",
        "%00",
        "%61",
        "%25",
        "%",
        "login",
        "%c0%ae",
        "%C0%AF",
        "%25c0%25af",
        "%c3%a9",
    ]);
    let start = prop::sample::select(vec!["/static/", "/files/", "/static", "/"]);
    (start, prop::collection::vec(piece, 0..7))
        .prop_map(|(start, pieces)| format!("{start}{}", pieces.concat()))
}

/// Whatever a service may take a path for: decoded any number of times, with parameters cut before
/// or after, overlong UTF-8 read as ASCII, backslashes taken for slashes, spaces trimmed, slashes merged, dots resolved.
fn anybodys_readings(path: &[u8]) -> Vec<Vec<u8>> {
    let mut readings = vec![path.to_vec()];
    let mut add = |of: fn(&[u8]) -> Vec<u8>| {
        let more: Vec<Vec<u8>> = readings.iter().map(|read| of(read)).collect();
        readings.extend(more);
        readings.sort_unstable();
        readings.dedup();
    };
    for _ in 0..3 {
        add(cut_parameters);
        add(bytes_decoded);
    }
    add(overlong_decoded);
    add(|path| path.iter().map(|b| if *b == b'\\' { b'/' } else { *b }).collect());
    add(cut_parameters);
    add(|path| each_segment(path, <[u8]>::trim_ascii));
    add(|path| {
        let mut merged = path.to_vec();
        merged.dedup_by(|a, b| (*a, *b) == (b'/', b'/'));
        merged
    });
    add(dots_resolved);
    add(|path| path.split(|b| *b == 0).next().unwrap().to_vec());
    readings
}

fn each_segment(path: &[u8], edit: impl Fn(&[u8]) -> &[u8]) -> Vec<u8> {
    path.split(|b| *b == b'/').map(edit).collect::<Vec<_>>().join(&b'/')
}

fn cut_parameters(path: &[u8]) -> Vec<u8> {
    each_segment(path, |segment| segment.split(|b| *b == b';').next().unwrap())
}

fn bytes_decoded(path: &[u8]) -> Vec<u8> {
    let (mut decoded, mut at) = (Vec::new(), 0);
    while at < path.len() {
        let digits = path.get(at + 1..at + 3).filter(|d| d.iter().all(u8::is_ascii_hexdigit));
        match digits {
            Some(digits) if path[at] == b'%' => {
                let digits = std::str::from_utf8(digits).unwrap();
                decoded.push(u8::from_str_radix(digits, 16).unwrap());
                at += 3;
            }
            _ => {
                decoded.push(path[at]);
                at += 1;
            }
        }
    }
    decoded
}

/// Some old decoders take any two bytes that begin with C0 or C1 for an ASCII character.
fn overlong_decoded(path: &[u8]) -> Vec<u8> {
    let (mut decoded, mut rest) = (Vec::new(), path);
    while let Some((byte, after)) = rest.split_first() {
        (rest, _) = match (byte, after) {
            (0xC0 | 0xC1, [low, after @ ..]) => {
                (after, decoded.push((byte & 1) << 6 | (low & 0x3F)))
            }
            _ => (after, decoded.push(*byte)),
        };
    }
    decoded
}

fn dots_resolved(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|b| *b == b'/').skip(1) {
        match segment {
            b"." => {}
            b".." => drop(segments.pop()),
            segment => segments.push(segment),
        }
    }
    segments.iter().flat_map(|segment| [b"/", *segment].concat()).collect()
}
