//! What a response says about the cost of its request.

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use http::{HeaderMap, HeaderName, StatusCode};

use crate::identity::ParseError;
use crate::policy::join;

/// What the response to a request changes about its cost. Until then, the policy's cost is held.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResponseRule {
    /// Which requests count. Without it, all do.
    pub counted: Option<Counted>,
    /// Where the response says what the request has cost. Without it, the hold is the cost.
    pub cost: Option<CostSource>,
}

/// Which requests count, by the status of the response. The others cost nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counted {
    /// Those with one of these.
    Only(Statuses),
    /// All but those with one of these.
    Except(Statuses),
}

/// Where a response says what the request has cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CostSource {
    /// In this header, as a number of units. Clients do not get the header.
    Header(HeaderName),
    /// In this member of the JSON body, or of the last event of a stream that has it.
    Json(JsonPath),
    /// The application says it, in the extensions of the response.
    Application,
}

/// What a response's head says about the cost of its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadCost {
    /// Nothing: the hold is the cost.
    Held,
    /// The request costs so many units.
    Units(u32),
    /// Its body may say more.
    InBody,
    /// The response lacks the header with the cost, so the hold is the cost.
    Missing,
    /// The header that has the cost is not one number: the hold is the cost.
    Malformed,
}

/// Written in place of a status if the client has left before there was one, as nginx does.
pub const CLIENT_CLOSED_REQUEST: u16 = 499;

impl ResponseRule {
    /// What the head of a response says about the cost.
    pub fn cost_of_head(&self, status: StatusCode, headers: &HeaderMap) -> HeadCost {
        if !self.counts(status.as_u16()) {
            return HeadCost::Units(0);
        }
        match &self.cost {
            None | Some(CostSource::Application) => HeadCost::Held,
            Some(CostSource::Json(_)) => HeadCost::InBody,
            Some(CostSource::Header(name)) => {
                let mut values = headers.get_all(name).iter();
                let units = match (values.next(), values.next()) {
                    (None, _) => return HeadCost::Missing,
                    (Some(value), None) => value.to_str().ok().and_then(units_of),
                    (Some(_), Some(_)) => None,
                };
                units.map_or(HeadCost::Malformed, HeadCost::Units)
            }
        }
    }

    /// What a request costs whose upstream could not be reached or did not answer, if the gateway
    /// answers it with this status.
    pub fn cost_of_failure(&self, status: StatusCode) -> HeadCost {
        match &self.counted {
            Some(Counted::Except(_)) => HeadCost::Units(0),
            Some(Counted::Only(counted)) if !counted.contain(status.as_u16()) => HeadCost::Units(0),
            Some(Counted::Only(_)) | None => HeadCost::Held,
        }
    }

    /// What a request costs whose client has left before there was a response. That is as good as a
    /// status of 499: the hold, unless requests with that status cost nothing.
    pub fn cost_of_abort(&self) -> HeadCost {
        let is_refunded = match &self.counted {
            Some(Counted::Except(refunded)) => refunded.contain(CLIENT_CLOSED_REQUEST),
            // A guess whose outcome the client did not wait for is still a guess.
            Some(Counted::Only(_)) | None => false,
        };
        if is_refunded { HeadCost::Units(0) } else { HeadCost::Held }
    }

    fn counts(&self, status: u16) -> bool {
        match &self.counted {
            None => true,
            Some(Counted::Only(statuses)) => statuses.contain(status),
            Some(Counted::Except(statuses)) => !statuses.contain(status),
        }
    }
}

/// A number of units as a header or a body has it. A fraction of a unit is a unit.
pub fn units_of(text: &str) -> Option<u32> {
    let text = text.trim();
    if let Ok(units) = text.parse::<u64>() {
        return Some(u32::try_from(units).unwrap_or(u32::MAX));
    }
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || b".eE+-".contains(&byte));
    let units = text.parse::<f64>().ok().filter(|units| is_number && *units >= 0.0)?;
    // Saturates.
    Some(units.ceil() as u32)
}

/// Says what differs from a policy that counts every request: `counts 401, 403, 5xx only`.
impl fmt::Display for ResponseRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.counted {
            None => {}
            Some(Counted::Only(statuses)) => write!(f, "counts only responses of {statuses}")?,
            Some(Counted::Except(statuses)) => write!(f, "refunds responses of {statuses}")?,
        }
        if self.counted.is_some() && self.cost.is_some() {
            f.write_str("; ")?;
        }
        match &self.cost {
            None => Ok(()),
            Some(CostSource::Header(name)) => write!(f, "cost from the response's header {name}"),
            Some(CostSource::Json(path)) => write!(f, "cost from {path} of the response's body"),
            Some(CostSource::Application) => f.write_str("cost as the application says"),
        }
    }
}

/// Statuses of responses: single ones such as `401`, or classes such as `5xx`.
///
/// ```
/// use slidegate::policy::Statuses;
///
/// let failed: Statuses = ["401", "403", "5xx"].iter().map(|text| text.parse()).collect::<Result<_, _>>()?;
/// assert!(failed.contain(401) && failed.contain(502) && !failed.contain(404));
/// # Ok::<(), slidegate::policy::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statuses(Vec<StatusRange>);

/// One status, or a class of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusRange(RangeInclusive<u16>);

impl Statuses {
    /// Whether this status is among them.
    pub fn contain(&self, status: u16) -> bool {
        self.0.iter().any(|StatusRange(range)| range.contains(&status))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<StatusRange> for Statuses {
    fn from_iter<T: IntoIterator<Item = StatusRange>>(ranges: T) -> Self {
        Self(ranges.into_iter().collect())
    }
}

impl From<StatusCode> for StatusRange {
    fn from(status: StatusCode) -> Self {
        Self(status.as_u16()..=status.as_u16())
    }
}

impl FromStr for StatusRange {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let range = match text.as_bytes() {
            [class @ b'1'..=b'5', b'x' | b'X', b'x' | b'X'] => {
                let first = u16::from(class - b'0') * 100;
                Some(first..=first + 99)
            }
            _ => text.parse().ok().filter(|status| (100..=599).contains(status)).map(|s| s..=s),
        };
        let expected = "a status: expected one such as 401, or a class such as 5xx";
        range.map(Self).ok_or_else(|| ParseError::new(text, expected))
    }
}

impl TryFrom<&str> for StatusRange {
    type Error = ParseError;

    fn try_from(text: &str) -> Result<Self, ParseError> {
        text.parse()
    }
}

impl fmt::Display for StatusRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0.start(), self.0.end()) {
            (first, last) if first == last => first.fmt(f),
            (first, _) => write!(f, "{}xx", first / 100),
        }
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join(&self.0, ", "))
    }
}

/// A member of a JSON document: names with dots between them, as in `usage.total_tokens`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonPath(Vec<Box<str>>);

impl JsonPath {
    /// The most members on the way.
    const MAX_NAMES: usize = 16;

    /// The names, from the outermost object on.
    pub fn names(&self) -> &[Box<str>] {
        &self.0
    }
}

impl FromStr for JsonPath {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let names: Vec<Box<str>> = text.split('.').map(Box::from).collect();
        if names.len() > Self::MAX_NAMES || names.iter().any(|name| name.is_empty()) {
            let expected = "a member of a JSON document: expected names with dots between them, \
                            such as usage.total_tokens";
            return Err(ParseError::new(text, expected));
        }
        Ok(Self(names))
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&join(&self.0, "."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statuses(texts: &[&str]) -> Statuses {
        texts.iter().map(|text| text.parse::<StatusRange>().unwrap()).collect()
    }

    #[test]
    fn a_status_is_a_number_or_a_class() {
        let text = statuses(&["401", "5xx", "2XX"]).to_string();
        assert_eq!(text, "401, 5xx, 2xx");
        for wrong in ["", "xx", "6xx", "99", "600", "5x", "5xxx", "-401", "401.0"] {
            assert!(wrong.parse::<StatusRange>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn units_are_whole_and_rounded_up() {
        let read = [
            ("0", Some(0)),
            (" 17 ", Some(17)),
            ("12.5", Some(13)),
            ("1e3", Some(1000)),
            ("99999999999999999999", Some(u32::MAX)),
            ("5000000000", Some(u32::MAX)),
            ("-1", None),
            ("", None),
            ("NaN", None),
            ("inf", None),
            ("12 units", None),
        ];
        for (text, units) in read {
            assert_eq!(units_of(text), units, "{text:?}");
        }
    }

    #[test]
    fn a_head_tells_the_cost_as_far_as_it_can() {
        let status = |code| StatusCode::from_u16(code).unwrap();
        let none = HeaderMap::new();
        let login = ResponseRule {
            counted: Some(Counted::Only(statuses(&["401", "5xx"]))),
            ..Default::default()
        };
        assert_eq!(login.cost_of_head(status(200), &none), HeadCost::Units(0));
        assert_eq!(login.cost_of_head(status(401), &none), HeadCost::Held);
        assert_eq!(login.cost_of_failure(status(502)), HeadCost::Held);
        assert_eq!(login.cost_of_abort(), HeadCost::Held);
        let api = ResponseRule {
            counted: Some(Counted::Except(statuses(&["503"]))),
            cost: Some(CostSource::Header(HeaderName::from_static("x-cost"))),
        };
        assert_eq!(api.cost_of_head(status(503), &none), HeadCost::Units(0));
        assert_eq!(api.cost_of_head(status(200), &none), HeadCost::Missing);
        assert_eq!(api.cost_of_failure(status(504)), HeadCost::Units(0), "upstream gave no answer");
        assert_eq!(api.cost_of_abort(), HeadCost::Held);
        let mut headers = HeaderMap::new();
        headers.insert("x-cost", "7".parse().unwrap());
        assert_eq!(api.cost_of_head(status(200), &headers), HeadCost::Units(7));
        headers.append("x-cost", "8".parse().unwrap());
        assert_eq!(api.cost_of_head(status(200), &headers), HeadCost::Malformed, "which?");
        let aborts = Some(Counted::Except(statuses(&["4xx"])));
        let aborts = ResponseRule { counted: aborts, ..Default::default() };
        assert_eq!(aborts.cost_of_abort(), HeadCost::Units(0));
    }

    #[test]
    fn a_path_has_names_between_dots() {
        let path: JsonPath = "usage.total_tokens".parse().unwrap();
        assert_eq!(path.names(), [Box::from("usage"), Box::from("total_tokens")]);
        for wrong in ["", ".", "usage.", ".usage", "a..b", &"a.".repeat(20)] {
            assert!(wrong.parse::<JsonPath>().is_err(), "{wrong:?}");
        }
    }
}
