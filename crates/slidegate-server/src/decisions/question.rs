//! What a caller asks: may this request pass, or can these charges be spent?

use std::fmt;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::num::NonZeroU32;

use http::{HeaderMap, Method};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use slidegate::limit::Name;
use slidegate::{Bearer, Cost, Facts, Gate, HeldCharge, Identity, NamedCharge, Policies, Store};
use slidegate_replay::{DescribedRequest, described_request};
use slidegate_tower::ResolvedClient;

use crate::endpoint::json_body;
use crate::endpoint::problem::Problem;
use crate::identity_text::SentIdentity;

/// One question: about a request as its caller describes it, or about charges.
#[derive(Debug, Deserialize)]
#[serde(from = "QuestionBody")]
pub(super) struct Question {
    pub(super) request: DescribedRequest,
    /// Whether a member of it is there.
    describes_request: bool,
    /// Whether the headers were written by the caller, not by its client.
    trusted: Option<bool>,
    refundable: Option<bool>,
    hold: Option<NonZeroU32>,
    charges: Option<AtMost<MAX_CHARGES, ChargeBody>>,
}

/// The members of a question. Those of [`DescribedRequest`] are listed again, because serde does not
/// deny unknown members of a struct that flattens another.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, expecting = "an object")]
struct QuestionBody {
    #[serde(deserialize_with = "described_request::method")]
    method: Method,
    #[serde(deserialize_with = "described_request::path")]
    path: Option<String>,
    #[serde(deserialize_with = "described_request::headers")]
    headers: HeaderMap,
    client: Option<IpAddr>,
    user: Option<String>,
    customer: Option<String>,
    plan: Option<String>,
    cost: Option<NonZeroU32>,
    trusted: Option<bool>,
    refundable: Option<bool>,
    hold: Option<NonZeroU32>,
    charges: Option<AtMost<MAX_CHARGES, ChargeBody>>,
}

impl From<QuestionBody> for Question {
    fn from(body: QuestionBody) -> Self {
        let QuestionBody { method, path, headers, client, user, customer, plan, cost, .. } = body;
        let QuestionBody { trusted, refundable, hold, charges, .. } = body;
        let mut request = DescribedRequest {
            method,
            headers,
            client,
            user,
            customer,
            plan,
            cost,
            ..Default::default()
        };
        let describes_request =
            path.is_some() || trusted.is_some() || request != DescribedRequest::default();
        if let Some(path) = path {
            request.path = path;
        }
        Self { request, describes_request, trusted, refundable, hold, charges }
    }
}

/// Units to spend from one account.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
struct ChargeBody {
    policy: String,
    identity: SentIdentity,
    plan: Option<String>,
    cost: Option<NonZeroU32>,
}

/// The body of `POST /v1/record`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub(super) struct RecordBody {
    charges: AtMost<MAX_CHARGES, ChargeBody>,
}

/// The most bytes of a body: a hundred questions with long headers.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// The most questions at once: those that share an account are a call to the store each.
pub(super) const MAX_QUESTIONS: usize = 100;

/// The most accounts that one question can charge.
const MAX_CHARGES: usize = 16;

impl Question {
    /// Reads one question, or a list of them. The policies are those that charges can be under.
    pub(super) fn read(body: &[u8], policies: &Policies) -> Result<Vec<Self>, Problem> {
        let is_list = json_body::is_list(body);
        let questions = if is_list {
            json_body::parse::<AtMost<MAX_QUESTIONS, Self>>(body)?.0
        } else {
            vec![json_body::parse(body)?]
        };
        for (index, question) in questions.iter().enumerate() {
            question.check(policies).map_err(|(member, problem)| {
                let member = if is_list { format!("[{index}].{member}") } else { member };
                Problem::invalid_member(&member, problem)
            })?;
        }
        Ok(questions)
    }

    /// The member that is wrong, and why.
    fn check(&self, policies: &Policies) -> Result<(), (String, String)> {
        let wrong = |member: &str, problem: &str| Err((member.to_owned(), problem.to_owned()));
        if self.hold.is_some() && self.request.cost.is_some() {
            return wrong("hold", "not together with cost: what is held is the cost until settled");
        }
        let Some(AtMost(charges)) = &self.charges else { return Ok(()) };
        if self.describes_request {
            return wrong("charges", "not together with members that describe a request");
        }
        if self.hold.is_some() && charges.iter().all(|charge| charge.cost.is_some()) {
            return wrong("hold", "expected a charge without a cost, which is held");
        }
        check_charges(charges, policies)
    }

    /// Whether the answer is to have an id, so that what is spent can be settled.
    pub(super) fn wants_id(&self) -> bool {
        self.hold.is_some() || self.refundable == Some(true)
    }

    /// Whether the cost of a charge is to be settled. Of named charges, it is if the hold was for it, or
    /// if there was none; of a request, it is if its policy leaves the cost to the caller or to the
    /// response.
    pub(super) fn is_open(&self, held: &HeldCharge, policies: &Policies) -> bool {
        if let Some(AtMost(charges)) = &self.charges {
            let is_own = |charge: &&ChargeBody| *charge.policy == *held.policy;
            let own = charges.iter().find(is_own);
            return self.hold.is_none() || own.is_some_and(|charge| charge.cost.is_none());
        }
        let policy = policies.iter().find(|policy| policy.name == held.policy);
        let is_of_response = held.response.as_ref().is_some_and(|rule| rule.cost.is_some());
        is_of_response || policy.is_none_or(|policy| policy.cost == Cost::Request)
    }

    /// The facts about the request. The caller says who the client is, and whether to trust headers.
    pub(super) fn facts(&self) -> Facts<'_> {
        let client = self.request.client;
        let is_trusted = self.trusted == Some(true);
        let facts = self.request.head().facts(ResolvedClient { peer: client, client, is_trusted });
        self.hold.map_or(facts, |units| facts.cost(units))
    }

    /// What an answer depends on and changes, as [`Gate::touches`] has it; none if it cannot be known
    /// beforehand.
    pub(super) fn touches<S: Store>(
        &self,
        bearer: Option<&Bearer>,
        gate: &Gate<S>,
    ) -> Option<Vec<(Option<Name>, Identity)>> {
        if let Some(AtMost(charges)) = &self.charges {
            let policies = gate.policies();
            let mut touched = Vec::with_capacity(2 * charges.len());
            for charge in charges {
                let name = policies.names().find(|name| ***name == *charge.policy)?;
                let identity = charge.identity.under(&policies);
                // An address may be counted by its network.
                if identity.kind() == "ip" {
                    return None;
                }
                // An API key that ends meanwhile has an account without its customer.
                touched.extend([
                    (Some(name.clone()), policies.account_of(identity)),
                    (Some(name.clone()), identity),
                ]);
            }
            return Some(touched);
        }
        let facts = self.facts();
        Some(gate.touches(&bearer.map_or(facts, |bearer| facts.bearer(bearer))))
    }

    /// The part of that which decides whether its bearer is looked up.
    pub(super) fn touches_by_address<S: Store>(
        &self,
        gate: &Gate<S>,
    ) -> Option<Vec<(Option<Name>, Identity)>> {
        match self.charges {
            Some(_) => self.touches(None, gate),
            None => Some(gate.touches_by_address(&self.facts())),
        }
    }

    /// The charges, if the question is about some.
    pub(super) fn charges(&self, policies: &Policies) -> Option<Vec<NamedCharge<'_>>> {
        let AtMost(charges) = self.charges.as_ref()?;
        Some(charges.iter().map(|charge| charge.named(self.hold, policies)).collect())
    }
}

impl RecordBody {
    /// The charges, if they can be under these policies.
    pub(super) fn charges(&self, policies: &Policies) -> Result<Vec<NamedCharge<'_>>, Problem> {
        let AtMost(charges) = &self.charges;
        check_charges(charges, policies)
            .map_err(|(member, problem)| Problem::invalid_member(&member, problem))?;
        Ok(charges.iter().map(|charge| charge.named(None, policies)).collect())
    }
}

impl ChargeBody {
    /// The charge, which costs what is held if it names no cost.
    fn named(&self, hold: Option<NonZeroU32>, policies: &Policies) -> NamedCharge<'_> {
        NamedCharge {
            policy: &self.policy,
            identity: self.identity.under(policies),
            plan: self.plan.as_deref(),
            cost: self.cost.or(hold),
            quotas: None,
        }
    }
}

/// The member that is wrong, and why.
fn check_charges(charges: &[ChargeBody], policies: &Policies) -> Result<(), (String, String)> {
    if charges.is_empty() {
        return Err(("charges".to_owned(), "expected at least one charge".to_owned()));
    }
    for (index, ChargeBody { policy, .. }) in charges.iter().enumerate() {
        let wrong = |problem: String| Err((format!("charges[{index}].policy"), problem));
        if !policies.names().any(|name| **name == **policy) {
            let policy = described_request::shortened(policy);
            return wrong(format!("there is no policy {policy:?}"));
        }
        if charges[..index].iter().any(|other| other.policy == *policy) {
            let problem = "charged twice; a question has one account under each policy";
            return wrong(problem.to_owned());
        }
    }
    Ok(())
}

/// A list that is not read any further than it may be long.
#[derive(Debug)]
struct AtMost<const MAX: usize, T>(Vec<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Deserialize<'de> for AtMost<MAX, T> {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Self, D::Error> {
        json.deserialize_seq(ListVisitor(PhantomData))
    }
}

struct ListVisitor<const MAX: usize, T>(PhantomData<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for ListVisitor<MAX, T> {
    type Value = AtMost<MAX, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of at most {MAX}")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<AtMost<MAX, T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            if list.len() == MAX {
                return Err(Error::custom(format_args!("more than {MAX}")));
            }
            list.push(item);
        }
        Ok(AtMost(list))
    }
}
