//! Normal forms of paths.

use std::borrow::Cow;
use std::fmt::Write as _;

use slidegate::policy::without_query;

/// How a path is read, so that no other spelling of it evades a policy.
///
/// In its normal form a path has no empty segments, no `.` and `..`, no slash at the end, no
/// parameters (`;x=1`) and no spaces at the end of a segment, and what needs no percent-encoding
/// has none: letters, digits, `-`, `.`, `_` and `~`. Other encodings stay, in capitals, and a `%`
/// that encodes nothing is `%25`. What is no path, such as the `*` of `OPTIONS *`, stays as it is.
///
/// Servers differ in how much of this they do, so there are [other readings](Self::readings)
/// between a path as it was sent and its normal form.
///
/// ```
/// use slidegate_tower::PathReading;
///
/// let paths = PathReading::default();
/// for path in ["/api/../login", "//login", "/%6cogin", "/login/", "/login;x=1", "/x/..;/login"] {
///     assert_eq!(paths.read(path), "/login");
/// }
/// assert_eq!(paths.read("/LOGIN"), "/LOGIN");
/// assert_eq!(paths.ignoring_case().read("/LOGIN"), "/login");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathReading {
    is_normal: bool,
    ignores_case: bool,
    decodes_slashes: bool,
    cuts_parameters: bool,
}

/// What is done to a path whose encoding is in its normal form. Empty segments and a slash at the
/// end are always taken away.
#[derive(Debug, Clone, Copy, Default)]
struct Steps {
    cut_parameters: bool,
    trim_spaces: bool,
    resolve_dots: bool,
}

impl PathReading {
    /// Paths as they were sent.
    pub fn as_sent() -> Self {
        Self { is_normal: false, ..Self::normal() }
    }

    /// Paths in their normal form, in which case matters and an encoded slash separates nothing.
    pub fn normal() -> Self {
        Self { is_normal: true, ignores_case: false, decodes_slashes: false, cuts_parameters: true }
    }

    /// Makes the normal form one of small ASCII letters, for services to which `/Login` is
    /// `/login`. Patterns have to be in small letters then.
    #[must_use]
    pub fn ignoring_case(self) -> Self {
        Self { is_normal: true, ignores_case: true, ..self }
    }

    /// Takes `%2F`, `%5C` and `\` for slashes in the normal form, for services that do so.
    #[must_use]
    pub fn decoding_slashes(self) -> Self {
        Self { is_normal: true, decodes_slashes: true, ..self }
    }

    /// Keeps the parameters of segments (`/login;x=1`), for services to which they are part of the
    /// name.
    #[must_use]
    pub fn keeping_parameters(self) -> Self {
        Self { is_normal: true, cuts_parameters: false, ..self }
    }

    /// The normal form of a path, without its query. One that is in it already is not copied.
    pub fn read<'p>(&self, path: &'p str) -> Cow<'p, str> {
        if self.is_normal && self.is_plain(path.as_bytes()) {
            return Cow::Borrowed(path);
        }
        let path = without_query(path);
        if !self.is_normal || !path.starts_with('/') {
            return Cow::Borrowed(path);
        }
        let steps =
            Steps { cut_parameters: self.cuts_parameters, trim_spaces: true, resolve_dots: true };
        let read = join(&steps.apply(self.decode(path).split('/')));
        if read == path { Cow::Borrowed(path) } else { Cow::Owned(read) }
    }

    /// Every way in which services may read a path, other than as it was sent: with encodings in
    /// their normal form and without empty segments, and then with or without parameters, spaces at
    /// the end of segments, and dots. These may be dealt with in any order, and again after another
    /// of them, as by a proxy that resolves dots and a service behind it that then cuts parameters.
    /// None for a path that is in its normal form, as nearly all are, and some forty at most.
    ///
    /// They are for [`Facts::other_paths`](slidegate::Facts::other_paths): a policy is for a request
    /// if it is for any of them.
    pub fn readings(&self, path: &str) -> Vec<String> {
        if !self.is_normal || self.is_plain(path.as_bytes()) {
            return Vec::new();
        }
        let path = without_query(path);
        if !path.starts_with('/') {
            return Vec::new();
        }
        let decoded = self.decode(path);
        let steps = self.single_steps(&decoded);
        let mut readings = vec![Steps::default().apply(decoded.split('/'))];
        let mut next = 0;
        while let Some(read) = readings.get(next) {
            let more: Vec<_> = steps.iter().map(|step| step.apply(read.iter().copied())).collect();
            for read in more {
                if !readings.contains(&read) {
                    readings.push(read);
                }
            }
            next += 1;
        }
        readings.iter().map(|segments| join(segments)).filter(|read| read != path).collect()
    }

    /// The steps, each by itself, that may change a path.
    fn single_steps(self, path: &str) -> Vec<Steps> {
        let none = Steps::default();
        let mut steps = Vec::new();
        if self.cuts_parameters && parameters(path).is_some() {
            steps.push(Steps { cut_parameters: true, ..none });
        }
        if path.contains(' ') || path.contains("%20") {
            steps.push(Steps { trim_spaces: true, ..none });
        }
        if path.contains("/.") {
            steps.push(Steps { resolve_dots: true, ..none });
        }
        steps
    }

    /// Whether a path is in its normal form at the first glance, as nearly all are.
    fn is_plain(self, path: &[u8]) -> bool {
        let mut after_slash = false;
        for byte in path {
            let odd = match byte {
                b'/' | b'.' => after_slash,
                b'%' | b'\\' | b'?' | b' ' => true,
                b';' => self.cuts_parameters,
                b'A'..=b'Z' => self.ignores_case,
                _ => false,
            };
            if odd {
                return false;
            }
            after_slash = *byte == b'/';
        }
        path.first() == Some(&b'/') && (!after_slash || path.len() == 1)
    }

    /// The path with its percent-encoding in the normal form.
    fn decode<'p>(&self, path: &'p str) -> Cow<'p, str> {
        if !path.contains(|c| self.is_special(c)) {
            return Cow::Borrowed(path);
        }
        let mut decoded = String::with_capacity(path.len());
        let mut rest = path;
        while let Some(at) = rest.find(|c| self.is_special(c)) {
            decoded.push_str(&rest[..at]);
            rest = &rest[at..];
            let (byte, length) = encoded(rest).map_or((rest.as_bytes()[0], 1), |byte| (byte, 3));
            match byte {
                b'/' | b'\\' if self.decodes_slashes => decoded.push('/'),
                b'A'..=b'Z' if self.ignores_case => {
                    decoded.push(char::from(byte.to_ascii_lowercase()));
                }
                b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                    decoded.push(char::from(byte));
                }
                _ => write!(decoded, "%{byte:02X}").expect("a string takes any text"),
            }
            rest = &rest[length..];
        }
        decoded.push_str(rest);
        Cow::Owned(decoded)
    }

    /// Whether the character may have to become another.
    fn is_special(self, c: char) -> bool {
        match c {
            '%' => true,
            '\\' => self.decodes_slashes,
            c => self.ignores_case && c.is_ascii_uppercase(),
        }
    }
}

impl Default for PathReading {
    fn default() -> Self {
        Self::normal()
    }
}

/// The byte that a text begins with in percent-encoding.
fn encoded(text: &str) -> Option<u8> {
    let [b'%', high, low, ..] = *text.as_bytes() else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

impl Steps {
    fn apply<'p>(self, segments: impl Iterator<Item = &'p str>) -> Vec<&'p str> {
        let mut read = Vec::new();
        for segment in segments {
            match self.segment(segment) {
                "" => {}
                "." if self.resolve_dots => {}
                ".." if self.resolve_dots => drop(read.pop()),
                segment => read.push(segment),
            }
        }
        read
    }

    fn segment(self, mut segment: &str) -> &str {
        if self.cut_parameters {
            segment = without_parameters(segment);
        }
        if self.trim_spaces {
            segment = without_spaces(segment);
        }
        segment
    }
}

fn join(segments: &[&str]) -> String {
    if segments.is_empty() {
        return "/".to_owned();
    }
    let length = segments.iter().map(|segment| segment.len() + 1).sum();
    let mut path = String::with_capacity(length);
    for segment in segments {
        path.push('/');
        path.push_str(segment);
    }
    path
}

/// Where a segment's parameters begin. Some services decode a path before they look for them.
fn parameters(segment: &str) -> Option<usize> {
    // By hand, because segments are short: a search for a string takes longer to begin than to end.
    let bytes = segment.as_bytes();
    let begins =
        |at: usize| bytes[at] == b';' || bytes[at] == b'%' && bytes[at..].starts_with(b"%3B");
    (0..bytes.len()).find(|at| begins(*at))
}

fn without_parameters(segment: &str) -> &str {
    parameters(segment).map_or(segment, |start| &segment[..start])
}

fn without_spaces(mut segment: &str) -> &str {
    while let Some(shorter) = segment.strip_suffix(' ').or_else(|| segment.strip_suffix("%20")) {
        segment = shorter;
    }
    segment
}
