//! Finds the policies for a path without asking each of them.

use matchit::Router;
use smallvec::SmallVec;

use crate::policy::path_pattern::Pattern;
use crate::policy::path_reading::{PathReading, PathReadings};

/// From a path to the policies whose patterns match it.
///
/// A router finds one pattern for a path, and several may match. So patterns that could match the
/// same path are in different routers, and all routers are asked: nearly always one or two, because
/// most patterns of a configuration exclude each other.
#[derive(Debug, Default)]
pub(crate) struct PathRouter {
    routers: Vec<PatternRouter>,
    /// Policies for any path.
    pathless: PolicyIndexes,
}

/// Patterns of which at most one matches a path.
#[derive(Debug, Default)]
struct PatternRouter {
    /// Leads to a place in `policies`.
    router: Router<usize>,
    policies: Vec<PolicyIndexes>,
    patterns: Vec<Segments>,
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
            let Ok(pattern) = Pattern::parse(written, reading) else { continue };
            let segments = Segments::new(&pattern.normal);
            let is_added = self.routers.iter_mut().any(|router| router.add(index, &segments));
            if !is_added {
                let mut router = PatternRouter::default();
                router.add(index, &segments);
                self.routers.push(router);
            }
        }
    }

    /// The policies that match any reading of a path, in order.
    pub(crate) fn find(&self, path: &PathReadings<'_>) -> PolicyIndexes {
        let mut found = self.pathless.clone();
        for router in &self.routers {
            for path in path.iter() {
                if let Ok(matched) = router.router.at(path) {
                    found.extend_from_slice(&router.policies[*matched.value]);
                }
            }
        }
        if !self.routers.is_empty() {
            found.sort_unstable();
            found.dedup();
        }
        found
    }
}

impl PatternRouter {
    /// Adds a policy. Returns false if another pattern could match the same path.
    fn add(&mut self, index: u32, segments: &Segments) -> bool {
        if let Some(same) = self.patterns.iter().position(|other| other == segments) {
            self.policies[same].push(index);
            return true;
        }
        if self.patterns.iter().any(|other| other.may_meet(segments)) {
            return false;
        }
        // What the router takes for a conflict goes to another one.
        if self.router.insert(segments.pattern(), self.policies.len()).is_err() {
            return false;
        }
        self.patterns.push(segments.clone());
        self.policies.push(PolicyIndexes::from_slice(&[index]));
        true
    }
}

/// The segments of a pattern, with parameters named by their number, so that patterns that differ in
/// these names only are equal.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Segments(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Literal(String),
    /// With a parameter in it: it may be equal to any other.
    Parameter(String),
    /// The rest of the path.
    Rest(String),
}

impl Segments {
    fn new(pattern: &str) -> Self {
        let mut parameters = 0;
        let segments = pattern.split('/').map(|segment| {
            let Some((before, rest)) = segment.split_once('{') else {
                return Segment::Literal(segment.to_owned());
            };
            let Some((name, after)) = rest.split_once('}') else {
                return Segment::Literal(segment.to_owned());
            };
            parameters += 1;
            let star = if name.starts_with('*') { "*" } else { "" };
            let text = format!("{before}{{{star}p{parameters}}}{after}");
            if star.is_empty() { Segment::Parameter(text) } else { Segment::Rest(text) }
        });
        Self(segments.collect())
    }

    fn pattern(&self) -> String {
        let text = |segment: &Segment| match segment {
            Segment::Literal(text) | Segment::Parameter(text) | Segment::Rest(text) => text.clone(),
        };
        self.0.iter().map(text).collect::<Vec<_>>().join("/")
    }

    /// Whether a path could match both patterns. In doubt it says so.
    fn may_meet(&self, other: &Self) -> bool {
        let (mut ours, mut theirs) = (self.0.iter(), other.0.iter());
        loop {
            match (ours.next(), theirs.next()) {
                (Some(Segment::Rest(_)), _) | (_, Some(Segment::Rest(_))) | (None, None) => {
                    return true;
                }
                (Some(Segment::Literal(ours)), Some(Segment::Literal(theirs)))
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
        assert_eq!(router(&patterns, PathReading::default()).routers.len(), 1);
        patterns.push(vec!["/api/{*rest}".to_owned()]);
        patterns.push(vec!["/api/{version}/things-7/{name}".to_owned()]);
        let router = router(&patterns, PathReading::default());
        assert_eq!(router.routers.len(), 3);
        let readings = PathReading::default().readings_of("/api/v1/things-7/9");
        assert_eq!(&router.find(&readings)[..], [7, 1000, 1001]);
    }

    fn segment() -> impl Strategy<Value = &'static str> {
        prop_oneof![
            Just("a"),
            Just("b"),
            Just("A"),
            Just("{x}"),
            Just("{y}"),
            Just("a-{x}"),
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
                let readings = reading.readings_of(path);
                let asked = good.iter().enumerate().filter(|(_, paths)| {
                    paths.is_empty() || paths.contain_any(&readings)
                });
                let asked: Vec<u32> = asked.map(|(index, _)| index as u32).collect();
                prop_assert_eq!(&router.find(&readings)[..], &asked[..], "{} of {:?}", path, written);
            }
        }
    }
}
