//! Finds the policies for a path without asking each of them.

use matchit::Router;
use smallvec::SmallVec;

use crate::policy::path_pattern::Pattern;
use crate::policy::path_reading::{PathReading, PathReadings};

/// From a path to the policies whose patterns match it.
#[derive(Debug, Default)]
pub(crate) struct PathRouter {
    patterns: PatternSet<PolicyIndexes>,
    /// Policies for any path.
    pathless: PolicyIndexes,
}

/// Places in the list of policies.
pub(crate) type PolicyIndexes = SmallVec<[u32; 4]>;

impl PathRouter {
    /// Leads to the policy at `index` from the paths of these patterns; from all paths if there are
    /// none.
    pub(crate) fn add(&mut self, index: u32, patterns: &[String], reading: PathReading) {
        if patterns.is_empty() {
            self.pathless.push(index);
        }
        for written in patterns {
            // A pattern with a mistake is reported elsewhere, and matches nothing.
            if let Ok(pattern) = Pattern::parse(written, reading) {
                self.patterns.entry(&pattern.normal).push(index);
            }
        }
    }

    /// The policies that match any reading of a path, in order.
    pub(crate) fn find(&self, path: &PathReadings<'_>) -> PolicyIndexes {
        let mut found = self.pathless.clone();
        if self.patterns.is_empty() {
            return found;
        }
        for policies in path.iter().flat_map(|path| self.patterns.matches(path)) {
            found.extend_from_slice(policies);
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// A value for each of a set of patterns.
///
/// A router finds one pattern for a path, and several may match. So patterns that could match the
/// same path are in different routers, and all routers are asked: nearly always one or two, because
/// most patterns of a configuration exclude each other.
#[derive(Debug, Clone)]
pub(crate) struct PatternSet<T>(Vec<PatternRouter<T>>);

/// Patterns of which at most one matches a path.
#[derive(Debug, Clone)]
struct PatternRouter<T> {
    /// Leads to a place in `values`.
    router: Router<usize>,
    values: Vec<T>,
    patterns: Vec<PatternSegments>,
}

impl<T> Default for PatternSet<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Default> PatternSet<T> {
    /// The value of a pattern, which must be a good one. It is added if need be.
    pub(crate) fn entry(&mut self, pattern: &str) -> &mut T {
        let segments = PatternSegments::new(pattern);
        let index = self.0.iter_mut().position(|router| router.add(&segments));
        let index = index.unwrap_or_else(|| {
            self.0.push(PatternRouter::default());
            let is_added = self.0.last_mut().is_some_and(|router| router.add(&segments));
            assert!(is_added, "an empty router takes any good pattern: {pattern}");
            self.0.len() - 1
        });
        let PatternRouter { patterns, values, .. } = &mut self.0[index];
        let place = patterns.iter().position(|other| *other == segments).expect("just added");
        &mut values[place]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pattern matches a path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.matches(path).next().is_some()
    }

    /// The values of all patterns that match a path.
    pub(crate) fn matches(&self, path: &str) -> impl Iterator<Item = &T> {
        self.0.iter().filter_map(move |PatternRouter { router, values, .. }| {
            router.at(path).ok().map(|matched| &values[*matched.value])
        })
    }
}

impl<T> Default for PatternRouter<T> {
    fn default() -> Self {
        Self { router: Router::new(), values: Vec::new(), patterns: Vec::new() }
    }
}

impl<T: Default> PatternRouter<T> {
    /// Adds a pattern, unless it is there. Returns false if another pattern could match the same path.
    fn add(&mut self, segments: &PatternSegments) -> bool {
        if self.patterns.contains(segments) {
            return true;
        }
        // What the router takes for a conflict goes to another one.
        if self.patterns.iter().any(|other| other.may_meet(segments))
            || self.router.insert(segments.pattern(), self.values.len()).is_err()
        {
            return false;
        }
        self.patterns.push(segments.clone());
        self.values.push(T::default());
        true
    }
}

/// The segments of a pattern, with parameters named by their number, so that patterns that differ in
/// these names only are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PatternSegments(Vec<PatternSegment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternSegment {
    Literal(String),
    /// Any text.
    Parameter(String),
    /// A parameter with text before or after it. Where several of them are at one place, a router
    /// tries the longest text only.
    Mixed(String),
    /// The rest of the path.
    Rest(String),
}

impl PatternSegments {
    fn new(pattern: &str) -> Self {
        let mut parameters = 0;
        let segments = pattern.split('/').map(|segment| {
            let Some((before, rest)) = segment.split_once('{') else {
                return PatternSegment::Literal(segment.to_owned());
            };
            let Some((name, after)) = rest.split_once('}') else {
                return PatternSegment::Literal(segment.to_owned());
            };
            parameters += 1;
            let star = if name.starts_with('*') { "*" } else { "" };
            let text = format!("{before}{{{star}p{parameters}}}{after}");
            match star {
                "*" => PatternSegment::Rest(text),
                _ if before.is_empty() && after.is_empty() => PatternSegment::Parameter(text),
                _ => PatternSegment::Mixed(text),
            }
        });
        Self(segments.collect())
    }

    fn pattern(&self) -> String {
        let text = |segment: &PatternSegment| match segment {
            PatternSegment::Literal(text)
            | PatternSegment::Parameter(text)
            | PatternSegment::Mixed(text)
            | PatternSegment::Rest(text) => text.clone(),
        };
        self.0.iter().map(text).collect::<Vec<_>>().join("/")
    }

    /// Whether a path could match both patterns, or a router could miss one of them because of the
    /// other. In doubt it says so.
    fn may_meet(&self, other: &Self) -> bool {
        use PatternSegment::{Mixed, Rest};
        let (mut ours, mut theirs) = (self.0.iter(), other.0.iter());
        loop {
            match (ours.next(), theirs.next()) {
                (Some(Rest(_) | Mixed(_)), _) | (_, Some(Rest(_) | Mixed(_))) | (None, None) => {
                    return true;
                }
                (Some(PatternSegment::Literal(ours)), Some(PatternSegment::Literal(theirs)))
                    if ours != theirs =>
                {
                    return false;
                }
                (Some(_), Some(_)) => {}
                (Some(_), None) | (None, Some(_)) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::policy::paths::Paths;

    fn router(patterns: &[Vec<String>], reading: PathReading) -> PathRouter {
        let mut router = PathRouter::default();
        for (index, patterns) in patterns.iter().enumerate() {
            router.add(index as u32, patterns, reading);
        }
        router
    }

    #[test]
    fn patterns_that_exclude_each_other_share_a_router() {
        let literal = (0..1000).map(|nth| vec![format!("/api/v1/things-{nth}/{{id}}")]);
        let mut patterns: Vec<Vec<String>> = literal.collect();
        assert_eq!(router(&patterns, PathReading::default()).patterns.0.len(), 1);
        patterns.push(vec!["/api/{*rest}".to_owned()]);
        patterns.push(vec!["/api/{version}/things-7/{name}".to_owned()]);
        let router = router(&patterns, PathReading::default());
        assert_eq!(router.patterns.0.len(), 3);
        let readings = PathReading::default().read("/api/v1/things-7/9");
        assert_eq!(&router.find(&readings)[..], [7, 1000, 1001]);
    }

    /// A router that has `{name}.json/` and `{name}/` looks for the first only in `x.json/…`.
    #[test]
    fn texts_around_a_parameter_hide_no_other_pattern() {
        let patterns = ["/files/{name}.json/meta", "/files/{name}/download", "/files/{id}-x/y"];
        let patterns = patterns.map(str::to_owned);
        let reading = PathReading::default();
        let apart = router(&patterns.each_ref().map(|pattern| vec![pattern.clone()]), reading);
        let mut together = Paths::default();
        together.patterns = patterns.to_vec();
        assert!(together.compile(reading).is_empty());
        for (path, index) in
            [("/files/a.json/download", 1), ("/files/a.json/meta", 0), ("/files/a-x/download", 1)]
        {
            let readings = reading.read(path);
            assert_eq!(&apart.find(&readings)[..], [index], "{path}");
            assert!(together.contain_any(&readings), "{path}");
        }
    }

    fn segment() -> impl Strategy<Value = &'static str> {
        prop_oneof![
            Just("a"),
            Just("b"),
            Just("A"),
            Just("{x}"),
            Just("{y}"),
            Just("a-{x}"),
            Just("{x}-a"),
            Just("{x}.b"),
            Just("")
        ]
    }

    fn pattern() -> impl Strategy<Value = String> {
        (vec(segment(), 1..4), any::<bool>()).prop_map(|(segments, has_rest)| {
            let rest = if has_rest { "/{*rest}" } else { "" };
            format!("/{}{rest}", segments.join("/"))
        })
    }

    fn path() -> impl Strategy<Value = String> {
        let segment = prop_oneof![
            Just("a"),
            Just("b"),
            Just("A"),
            Just("c"),
            Just("a-b"),
            Just("b-a"),
            Just("a-a"),
            Just("a.b"),
            Just("%61"),
            Just(".."),
            Just("")
        ];
        vec(segment, 1..5).prop_map(|segments| format!("/{}", segments.join("/")))
    }

    proptest! {
        #[test]
        fn the_router_finds_what_asking_every_policy_finds(
            patterns in vec(vec(pattern(), 0..3), 1..8),
            paths in vec(path(), 1..8),
        ) {
            let reading = PathReading::default();
            // As policies are built: those with a mistake are refused as a whole.
            let is_good = |patterns: &Vec<String>| {
                let mut paths = Paths::default();
                paths.patterns.clone_from(patterns);
                paths.compile(reading).is_empty().then_some(paths)
            };
            let good: Vec<Paths> = patterns.iter().filter_map(is_good).collect();
            let written: Vec<Vec<String>> = good.iter().map(|paths| paths.patterns.clone()).collect();
            let router = router(&written, reading);
            for path in &paths {
                let readings = reading.read(path);
                let asked = good.iter().enumerate().filter(|(_, paths)| {
                    paths.is_empty() || paths.contain_any(&readings)
                });
                let asked: Vec<u32> = asked.map(|(index, _)| index as u32).collect();
                prop_assert_eq!(&router.find(&readings)[..], &asked[..], "{} of {:?}", path, written);
            }
        }
    }
}
