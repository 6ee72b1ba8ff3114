//! Every way in which servers may read a path, so that no spelling of it evades a policy.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Write as _;

use foldhash::fast::RandomState;

/// In which ways a path is read.
///
/// Servers differ in what they make of a path. Each of these steps is taken or not, in any order,
/// before or after the percent-encoding is decoded, and again after another step, as by a proxy
/// that resolves dots and a service behind it that then decodes slashes:
///
/// | step | `/login` is also |
/// |---|---|
/// | letter case is ignored | `/Login` |
/// | empty segments are dropped, and a slash at the end | `//login`, `/login/` |
/// | dots are resolved | `/./login`, `/api/../login` |
/// | parameters are cut | `/login;x=1`, `/x/..;/login` |
/// | a fragment is cut | `/login#x` |
/// | spaces at the end of a segment are trimmed | `/login%20` |
/// | `%2F` is a slash | `/%2Flogin` |
/// | `\` and `%5C` are slashes | `/\login` |
///
/// A policy is for a request if it is for any reading of its path, and so is the blocked list; an
/// exemption needs all of them. Each method here switches one step off, for services that are known
/// not to take it.
///
/// ```
/// use slidegate::{Facts, Policies, Policy, policy::PathReading};
///
/// let login = Policy::new("login").path("/login").quota("5/min");
/// let policies = Policies::builder().policy(login.clone()).build()?;
/// let is_for = |policies: &Policies, path| {
///     policies.matching(&Facts::new(&http::Method::GET, path)).next().is_some()
/// };
/// for path in ["/LOGIN", "//login/", "/%6cogin", "/x%2F..%2Flogin", "/x/..;/login", "/login#x"] {
///     assert!(is_for(&policies, path));
/// }
///
/// let paths = PathReading::default().matching_case();
/// let policies = Policies::builder().policy(login).path_reading(paths).build()?;
/// assert!(!is_for(&policies, "/LOGIN"));
/// # Ok::<(), slidegate::PolicyErrors>(())
/// ```
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathReading {
    ignores_case: bool,
    decodes_slashes: bool,
    converts_backslashes: bool,
    cuts_parameters: bool,
}

/// The readings of one path, found once for all that depend on it: see [`PathReading::read`].
///
/// Patterns in their normal form are matched with them.
#[must_use]
#[derive(Debug, Clone)]
pub struct PathReadings<'p> {
    /// In which ways it was read.
    pub(crate) reading: PathReading,
    /// As it was sent, without its query.
    pub(crate) sent: &'p str,
    /// Empty if there is one reading only: as it was sent.
    others: Vec<String>,
    /// False if there are more than are looked at.
    pub(crate) is_complete: bool,
}

/// The most readings of a path. The longest list that is not contrived has some forty.
const MAX_READINGS: usize = 64;

/// The most bytes of all readings of a path together, and the most segments: a long path has fewer
/// readings, because each of them takes time in proportion.
const MAX_BYTES: usize = 64 * 1024;
const MAX_SEGMENTS: usize = 1024;

/// At least this many readings of a path are considered, however long it is: those of two steps. A
/// path with too many segments for that is not read further.
const MIN_READINGS: usize = 4;

/// The segments of a path as some server reads it.
type Segments<'p> = Vec<&'p str>;

/// What a server may do to a path.
#[derive(Debug, Clone, Copy)]
enum PathStep {
    DropEmpty,
    ResolveDots,
    CutParameters,
    /// Cuts the path at the first of these.
    CutTail(&'static [&'static str]),
    TrimEnd(&'static str),
    /// Takes these for slashes.
    SplitAt(&'static [&'static str]),
}

impl PathReading {
    /// Takes `/Login` for another path than `/login`, for services to which it is another.
    pub fn matching_case(self) -> Self {
        Self { ignores_case: false, ..self }
    }

    /// Takes `%2F` for a part of a segment only, for services that never decode it to a slash.
    pub fn keeping_encoded_slashes(self) -> Self {
        Self { decodes_slashes: false, ..self }
    }

    /// Takes `\` and `%5C` for a part of a segment only, for services to which they are no slashes.
    pub fn keeping_backslashes(self) -> Self {
        Self { converts_backslashes: false, ..self }
    }

    /// Takes the parameters of a segment (`/login;x=1`) for a part of its name only, for services
    /// that do not cut them.
    pub fn keeping_parameters(self) -> Self {
        Self { cuts_parameters: false, ..self }
    }

    /// The normal form of a path, by which a proxy can choose where to send it: without query,
    /// empty segments, dots, parameters, needless encoding and spaces at the end of a segment. Case
    /// is kept, and an encoded slash separates nothing. One that is in it already is not copied.
    ///
    /// ```
    /// use slidegate::policy::PathReading;
    ///
    /// assert_eq!(PathReading::default().normal_form("/x/..;//%6cogin/?next=%2F"), "/login");
    /// ```
    pub fn normal_form<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let path = without_query(path);
        if !path.starts_with('/') || self.matching_case().is_plain(path) {
            return Cow::Borrowed(path);
        }
        let decoded = self.matching_case().decode(path);
        let mut read = segments(&decoded);
        let cut = self.cuts_parameters.then_some(PathStep::CutParameters);
        let others = [PathStep::TrimEnd(DECODED.space), PathStep::DropEmpty, PathStep::ResolveDots];
        for step in cut.into_iter().chain(others) {
            read = step.apply(&read).unwrap_or(read);
        }
        Cow::Owned(join(&read))
    }

    /// All readings of a request's target: of the part before its query.
    ///
    /// [`Facts::readings`](crate::Facts::readings) takes them, and a proxy can choose by their
    /// [normal form](PathReadings::normal_form) where to send the request.
    pub fn read<'p>(&self, target: &'p str) -> PathReadings<'p> {
        let sent = without_query(target);
        let mut readings =
            PathReadings { reading: *self, sent, others: Vec::new(), is_complete: true };
        if !sent.starts_with('/') || self.is_plain(sent) {
            return readings;
        }
        let folded = match self.ignores_case {
            true => Cow::Owned(sent.to_ascii_lowercase()),
            false => Cow::Borrowed(sent),
        };
        if self.is_plain(&folded) {
            readings.others.push(folded.into_owned());
            return readings;
        }
        let start = segments(&folded);
        if start.len() > MAX_SEGMENTS / MIN_READINGS {
            readings.others.push(folded.into_owned());
            readings.is_complete = false;
            return readings;
        }
        let most = (MAX_BYTES / sent.len()).min(MAX_SEGMENTS / start.len());
        let most = most.clamp(MIN_READINGS, MAX_READINGS);
        let mut raw = Closure { paths: vec![start], is_complete: true };
        if has_encoded_structure(&folded) {
            raw = self.close(raw.paths, &RAW, most);
        }
        let decoded: Vec<String> =
            raw.paths.iter().map(|read| self.decode(&join(read)).into_owned()).collect();
        let decoded = decoded.iter().map(|text| segments(text)).collect();
        let all = self.close(decoded, &DECODED, most);
        readings.is_complete = raw.is_complete && all.is_complete;
        readings.others = all.paths.iter().map(|read| join(read)).collect();
        readings.others.sort_unstable();
        readings.others.dedup();
        readings
    }

    /// A text with its percent-encoding in the normal form: only what may not stand in a path is
    /// encoded, and what separates or ends one, in capitals. Letters are small if case is ignored.
    pub(crate) fn decode<'p>(&self, text: &'p str) -> Cow<'p, str> {
        let bytes = text.as_bytes();
        if bytes.iter().all(|byte| is_ordinary(*byte) && !self.is_folded(*byte)) {
            return Cow::Borrowed(text);
        }
        let mut decoded = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            let encoded = percent_encoded(&bytes[at..]);
            at += if encoded.is_some() { 3 } else { 1 };
            match encoded.unwrap_or(byte) {
                // An encoded slash is none, and a lone `%` is `%25`.
                b'/' if encoded.is_some() => decoded.push_str("%2F"),
                byte if !is_ordinary(byte) => {
                    write!(decoded, "%{byte:02X}").expect("a string takes any text");
                }
                byte if self.ignores_case => {
                    decoded.push(char::from(byte.to_ascii_lowercase()));
                }
                byte => decoded.push(char::from(byte)),
            }
        }
        Cow::Owned(decoded)
    }

    /// Whether a path has one reading only at the first glance, as nearly all have.
    fn is_plain(self, path: &str) -> bool {
        // How many dots a segment has, if it has nothing else; three are a name like any other.
        const EMPTY: u8 = 0;
        const NAME: u8 = 3;
        let Some(rest) = path.strip_prefix('/') else { return false };
        let mut segment = EMPTY;
        for byte in rest.bytes() {
            segment = match byte {
                b'/' if segment < NAME => return false,
                b'/' => EMPTY,
                b'.' if segment < NAME => segment + 1,
                b';' if self.cuts_parameters => return false,
                byte if !is_ordinary(byte) || self.is_folded(byte) => return false,
                _ => NAME,
            };
        }
        segment == NAME || rest.is_empty()
    }

    fn is_folded(self, byte: u8) -> bool {
        self.ignores_case && byte.is_ascii_uppercase()
    }

    /// All that becomes of paths by taking any of the steps in any order, as far as there is room.
    fn close<'p>(self, from: Vec<Segments<'p>>, forms: &Spellings, most: usize) -> Closure<'p> {
        let steps = self.steps(&from, forms);
        let mut paths = Vec::with_capacity(from.len());
        let mut known: HashSet<Segments<'p>, RandomState> = HashSet::default();
        for read in from {
            if known.insert(read.clone()) {
                paths.push(read);
            }
        }
        let mut next = 0;
        while next < paths.len() {
            for step in &steps {
                let Some(read) = step.apply(&paths[next]) else { continue };
                if known.contains(&read) {
                    continue;
                }
                if paths.len() >= most {
                    return Closure { paths, is_complete: false };
                }
                known.insert(read.clone());
                paths.push(read);
            }
            next += 1;
        }
        Closure { paths, is_complete: true }
    }

    /// The steps that may change one of the paths.
    fn steps(self, paths: &[Segments<'_>], forms: &Spellings) -> Vec<PathStep> {
        let has = |text: &str| paths.iter().flatten().any(|segment| has(segment, text));
        let has_any = |texts: &[&str]| texts.iter().any(|text| has(text));
        let Spellings { tails, space, slashes, backslashes } = *forms;
        let mut steps = vec![PathStep::DropEmpty];
        if has(".") {
            steps.push(PathStep::ResolveDots);
        }
        if self.cuts_parameters && has(";") {
            steps.push(PathStep::CutParameters);
        }
        if has_any(tails) {
            steps.push(PathStep::CutTail(tails));
        }
        if has(space) {
            steps.push(PathStep::TrimEnd(space));
        }
        if self.decodes_slashes && has_any(slashes) {
            steps.push(PathStep::SplitAt(slashes));
        }
        if self.converts_backslashes && has_any(backslashes) {
            steps.push(PathStep::SplitAt(backslashes));
        }
        steps
    }
}

impl Default for PathReading {
    fn default() -> Self {
        Self {
            ignores_case: true,
            decodes_slashes: true,
            converts_backslashes: true,
            cuts_parameters: true,
        }
    }
}

impl PathReadings<'_> {
    /// [`PathReading::normal_form`] of the path.
    pub fn normal_form(&self) -> Cow<'_, str> {
        // A path that has one reading also if case is ignored is in its normal form.
        if self.is_plain() { Cow::Borrowed(self.sent) } else { self.reading.normal_form(self.sent) }
    }

    /// Whether there is one reading only.
    pub(crate) fn is_plain(&self) -> bool {
        self.others.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        let sent = self.others.is_empty().then_some(self.sent);
        sent.into_iter().chain(self.others.iter().map(String::as_str))
    }
}

/// What [`PathReading::close`] has found.
struct Closure<'p> {
    paths: Vec<Segments<'p>>,
    is_complete: bool,
}

/// How the characters that steps look for are spelled.
#[derive(Clone, Copy)]
struct Spellings {
    tails: &'static [&'static str],
    space: &'static str,
    slashes: &'static [&'static str],
    backslashes: &'static [&'static str],
}

/// In a path as it was sent. Encoded, they mean nothing to a server that has not decoded them,
/// but for slashes, which some decode first.
const RAW: Spellings =
    Spellings { tails: &["#"], space: " ", slashes: &["%2f", "%2F"], backslashes: &["\\"] };

/// In a path whose encoding is in the normal form.
const DECODED: Spellings =
    Spellings { tails: &["%23", "%3F"], space: "%20", slashes: &["%2F"], backslashes: &["%5C"] };

const PARAMETERS: char = ';';

impl PathStep {
    /// What the step makes of a path; none if it changes nothing.
    fn apply<'p>(self, path: &[&'p str]) -> Option<Segments<'p>> {
        let changes = |segment: &&str| match self {
            Self::DropEmpty => segment.is_empty(),
            Self::ResolveDots => matches!(*segment, "." | ".."),
            Self::CutParameters => segment.contains(PARAMETERS),
            Self::CutTail(at) | Self::SplitAt(at) => at.iter().any(|at| has(segment, at)),
            Self::TrimEnd(end) => segment.ends_with(end),
        };
        let first = path.iter().position(changes)?;
        let (kept, rest) = path.split_at(first);
        let mut read = Vec::with_capacity(path.len() + 2);
        read.extend_from_slice(kept);
        for segment in rest.iter().copied() {
            match self {
                Self::DropEmpty if segment.is_empty() => {}
                Self::ResolveDots if segment == "." => {}
                Self::ResolveDots if segment == ".." => drop(read.pop()),
                Self::DropEmpty | Self::ResolveDots => read.push(segment),
                Self::CutParameters => read.push(segment.split(PARAMETERS).next().unwrap_or("")),
                Self::CutTail(at) => {
                    read.push(cut(segment, at));
                    return Some(read);
                }
                Self::TrimEnd(end) => read.push(segment.trim_end_matches(end)),
                Self::SplitAt(at) => split(segment, at, &mut read),
            }
        }
        Some(read)
    }
}

/// Whether a segment has this text. Most have no byte that such a text begins with.
fn has(segment: &str, text: &str) -> bool {
    segment.as_bytes().contains(&text.as_bytes()[0]) && segment.contains(text)
}

/// Adds the parts of a segment between slashes, however these are spelled.
fn split<'p>(segment: &'p str, slashes: &[&str], parts: &mut Segments<'p>) {
    let mut rest = segment;
    while let Some((at, slash)) =
        slashes.iter().filter_map(|slash| Some((rest.find(slash)?, slash))).min()
    {
        parts.push(&rest[..at]);
        rest = &rest[at + slash.len()..];
    }
    parts.push(rest);
}

/// Whether a path has anything encoded that a server may act on: then it makes a difference whether
/// that is decoded first.
fn has_encoded_structure(path: &str) -> bool {
    let bytes = path.as_bytes();
    (0..bytes.len())
        .filter_map(|at| percent_encoded(&bytes[at..]))
        .any(|byte| b".; #?\\".contains(&byte))
}

/// The text before the first of these.
fn cut<'p>(text: &'p str, at: &[&str]) -> &'p str {
    at.iter().fold(text, |text, at| text.split_once(at).map_or(text, |(before, _)| before))
}

fn segments(path: &str) -> Segments<'_> {
    path.strip_prefix('/').unwrap_or(path).split('/').collect()
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

/// The byte that a text begins with in percent-encoding.
fn percent_encoded(text: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = *text else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(high)? * 16 + digit(low)?) as u8)
}

/// Whether a byte stands for itself in a path: a slash, or what RFC 3986 allows in a segment.
fn is_ordinary(byte: u8) -> bool {
    matches!(byte,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' | b':' | b'@'
        | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}

/// The part of a request's target that policies are matched with: all before a `?`.
pub fn without_query(target: &str) -> &str {
    target.split_once('?').map_or(target, |(path, _)| path)
}
