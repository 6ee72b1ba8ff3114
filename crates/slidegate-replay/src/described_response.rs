//! Responses that are described instead of received.

use http::{HeaderMap, StatusCode};
use slidegate::policy::{CLIENT_CLOSED_REQUEST, HeadCost, ResponseRule};

/// What is known of the response to a request that passes, as a log or a test case has it. By default
/// nothing is known, and each request costs what was held for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DescribedResponse {
    /// How the request ended, if it is known.
    pub end: Option<ResponseEnd>,
    /// How many units the request has cost, for policies whose cost comes from the response.
    pub cost: Option<u32>,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseEnd {
    /// With a response of this status.
    Status(StatusCode),
    /// The client left before there was a response.
    Aborted,
}

/// What the load balancers of AWS log instead of 499.
const AWS_CLIENT_CLOSED: u16 = 460;

/// 499 stands for a client that left.
impl From<StatusCode> for ResponseEnd {
    fn from(status: StatusCode) -> Self {
        match status.as_u16() {
            CLIENT_CLOSED_REQUEST => Self::Aborted,
            _ => Self::Status(status),
        }
    }
}

impl ResponseEnd {
    /// The end that a log has as this status, where 460 and 0 stand for a client that left too. None
    /// if it is not a status.
    pub(crate) fn from_logged(status: u16) -> Option<Self> {
        match status {
            0 | AWS_CLIENT_CLOSED => Some(Self::Aborted),
            _ => StatusCode::from_u16(status).ok().map(Self::from),
        }
    }
}

impl DescribedResponse {
    /// What a request costs under a rule for which so many units were held.
    pub(crate) fn cost_under(&self, rule: &ResponseRule, held: u32) -> u32 {
        match self.head_cost(rule) {
            HeadCost::Units(units) => units,
            _ if !self.has_cost_for(rule) => held,
            _ => self.cost.unwrap_or(held),
        }
    }

    /// Whether the rule looks at the status, which is not known.
    pub(crate) fn lacks_status(&self, rule: &ResponseRule) -> bool {
        rule.counted.is_some() && self.end.is_none()
    }

    /// Whether the rule needs the cost, which is not known.
    pub(crate) fn lacks_cost(&self, rule: &ResponseRule) -> bool {
        let is_counted = !matches!(self.head_cost(rule), HeadCost::Units(_));
        self.has_cost_for(rule) && is_counted && self.cost.is_none()
    }

    /// Whether there was a response that could say the cost.
    fn has_cost_for(&self, rule: &ResponseRule) -> bool {
        rule.cost.is_some() && self.end != Some(ResponseEnd::Aborted)
    }

    fn head_cost(&self, rule: &ResponseRule) -> HeadCost {
        match self.end {
            None => HeadCost::Held,
            Some(ResponseEnd::Aborted) => rule.cost_of_abort(),
            Some(ResponseEnd::Status(status)) => rule.cost_of_head(status, &HeaderMap::new()),
        }
    }
}

#[cfg(test)]
mod tests {
    use slidegate::policy::{CostSource, Counted, StatusRange};

    use super::*;

    #[track_caller]
    fn check(rule: &ResponseRule, expected: [(Option<u16>, Option<u32>, u32); 5]) {
        for (status, cost, units) in expected {
            let end = status.and_then(ResponseEnd::from_logged);
            let response = DescribedResponse { end, cost };
            assert_eq!(response.cost_under(rule, 3), units, "{rule}: {response:?}");
        }
    }

    #[test]
    fn a_response_settles_as_the_rule_says() {
        let statuses = || ["401", "5xx"].map(|text| text.parse::<StatusRange>().unwrap());
        let statuses = || statuses().into_iter().collect();
        let count = ResponseRule { counted: Some(Counted::Only(statuses())), ..Default::default() };
        check(
            &count,
            [
                (Some(200), Some(9), 0),
                (Some(401), Some(9), 3),
                (Some(499), None, 3),
                (Some(0), None, 3),
                (None, None, 3),
            ],
        );
        let cost = Some(CostSource::Application);
        let tokens = ResponseRule { counted: Some(Counted::Except(statuses())), cost };
        check(
            &tokens,
            [
                (Some(200), Some(9), 9),
                (Some(503), Some(9), 0),
                (Some(200), None, 3),
                (Some(460), Some(9), 3),
                (None, Some(0), 0),
            ],
        );
    }

    #[test]
    fn what_a_rule_lacks_is_known() {
        let ok = DescribedResponse { end: ResponseEnd::from_logged(200), cost: None };
        let left = DescribedResponse { end: ResponseEnd::from_logged(499), cost: None };
        let unknown = DescribedResponse::default();
        let status = "5xx".parse::<StatusRange>().unwrap();
        let refund = Counted::Except([status].into_iter().collect());
        let refund = ResponseRule { counted: Some(refund), ..Default::default() };
        assert_eq!([ok, left, unknown].map(|one| one.lacks_status(&refund)), [false, false, true]);
        assert_eq!([ok, left, unknown].map(|one| one.lacks_cost(&refund)), [false; 3]);
        let tokens = ResponseRule { cost: Some(CostSource::Application), ..Default::default() };
        assert_eq!([ok, left, unknown].map(|one| one.lacks_status(&tokens)), [false; 3]);
        assert_eq!([ok, left, unknown].map(|one| one.lacks_cost(&tokens)), [true, false, true]);
    }
}
