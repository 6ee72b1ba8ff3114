//! Random logs, decided by the command and by a model that shares no code with it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::Value;

use super::Files;

/// A request of the random log.
#[derive(Debug, Clone)]
struct Sent {
    ms: u64,
    user: u8,
    cost: u64,
    is_upload: bool,
    /// Of the response, if the log has it.
    status: Option<u16>,
    response_cost: Option<u64>,
}

/// A policy as the model has it: units and window in milliseconds.
#[derive(Debug, Clone)]
struct ModelPolicy {
    only_uploads: bool,
    quotas: Vec<(u64, u64)>,
    rule: ModelRule,
    /// What is held if the response says the cost.
    hold: Option<u64>,
}

/// Which responses count.
#[derive(Debug, Clone)]
enum ModelRule {
    All,
    Count(Vec<u16>),
    Refund(Vec<u16>),
}

/// What the model expects of a policy.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    requests: u64,
    refused: u64,
    identities_refused: u64,
    /// For each quota, the busiest window of any user.
    busiest: Vec<u64>,
    /// For each quota, those above it that only other policies refuse.
    refused_first: Vec<RefusedFirst>,
}

/// How many users, and the requests of theirs that each other policy refuses.
#[derive(Debug, Default, PartialEq, Eq)]
struct RefusedFirst {
    identities: u64,
    by: BTreeMap<String, u64>,
}

/// A request that some policies refuse.
struct Refused<'l> {
    request: &'l Sent,
    by: Vec<usize>,
}

const BEGIN_MS: u64 = 1_767_225_600_000;

impl ModelPolicy {
    fn is_for(&self, request: &Sent) -> bool {
        request.is_upload || !self.only_uploads
    }

    /// What a request needs to be allowed.
    fn held(&self, request: &Sent) -> u64 {
        self.hold.unwrap_or(request.cost)
    }

    /// What a request has cost in the end.
    fn counted(&self, request: &Sent) -> u64 {
        let has_left = request.status == Some(499);
        let is_counted = match (&self.rule, request.status) {
            (ModelRule::All, _) | (_, None) => true,
            (ModelRule::Count(statuses), Some(status)) => has_left || statuses.contains(&status),
            (ModelRule::Refund(statuses), Some(status)) => !statuses.contains(&status),
        };
        match (is_counted, self.hold, request.response_cost) {
            (false, ..) => 0,
            (true, Some(_), Some(cost)) if !has_left => cost,
            (true, ..) => self.held(request),
        }
    }

    /// Whether it has room, given all that was admitted before.
    fn has_room(&self, request: &Sent, admitted: &[Sent]) -> bool {
        self.quotas.iter().all(|(units, window_ms)| {
            let spent = admitted.iter().filter(|other| {
                self.is_for(other)
                    && other.user == request.user
                    && other.ms + window_ms > request.ms
            });
            spent.map(|other| self.counted(other)).sum::<u64>() + self.held(request) <= *units
        })
    }

    fn can_ever_pay(&self, request: &Sent) -> bool {
        self.quotas.iter().all(|(units, _)| self.held(request) <= *units)
    }

    /// The busiest window of one user.
    fn busiest(&self, window_ms: u64, log: &[Sent], user: u8) -> u64 {
        let own = |request: &&Sent| self.is_for(request) && request.user == user;
        let in_window = |(index, last): (usize, &Sent)| -> u64 {
            let others = log[..index].iter().filter(own);
            let in_window = others.filter(|other| other.ms + window_ms > last.ms);
            in_window.map(|other| self.counted(other)).sum::<u64>() + self.held(last)
        };
        let ends = log.iter().enumerate().filter(|(_, request)| own(request));
        ends.map(in_window).max().unwrap_or(0)
    }
}

/// Decides every request by looking at all that was admitted before it. Returns what each policy
/// refuses, and how many requests are refused in all.
fn model(policies: &[ModelPolicy], log: &[Sent]) -> (Vec<Expected>, u64) {
    let mut admitted: Vec<Sent> = Vec::new();
    let mut refused = Vec::new();
    for request in log {
        let is_for = |policy: &&ModelPolicy| policy.is_for(request);
        let is_too_costly = !policies.iter().filter(is_for).all(|own| own.can_ever_pay(request));
        let refuses = |policy: &ModelPolicy| match is_too_costly {
            true => !policy.can_ever_pay(request),
            false => !policy.has_room(request, &admitted),
        };
        let by = (0..policies.len())
            .filter(|index| policies[*index].is_for(request) && refuses(&policies[*index]));
        let by: Vec<usize> = by.collect();
        match by.is_empty() {
            true => admitted.push(request.clone()),
            false => refused.push(Refused { request, by }),
        }
    }
    let expected = (0..policies.len()).map(|index| expected(policies, index, log, &refused));
    (expected.collect(), refused.len() as u64)
}

fn expected(
    policies: &[ModelPolicy],
    index: usize,
    log: &[Sent],
    refused: &[Refused<'_>],
) -> Expected {
    let policy = &policies[index];
    let own = refused.iter().filter(|refused| refused.by.contains(&index));
    let own: Vec<u8> = own.map(|refused| refused.request.user).collect();
    let refused_users: BTreeSet<u8> = own.iter().copied().collect();
    let matched = || log.iter().filter(|request| policy.is_for(request));
    let users: BTreeSet<u8> = matched().map(|request| request.user).collect();
    let busiest_of = |window_ms: u64, user: u8| policy.busiest(window_ms, log, user);
    // Only identities above one of the quotas are refused.
    let is_above = |user: u8| {
        policy.quotas.iter().any(|(units, window_ms)| busiest_of(*window_ms, user) > *units)
    };
    assert!(refused_users.iter().all(|user| is_above(*user)));
    let refused_first = |(units, window_ms): &(u64, u64)| {
        let mut first = RefusedFirst::default();
        let spared = users.difference(&refused_users);
        for user in spared.filter(|user| busiest_of(*window_ms, **user) > *units) {
            first.identities += 1;
            let theirs = refused.iter().filter(|refused| refused.request.user == *user);
            let theirs = theirs.filter(|refused| policy.is_for(refused.request));
            for other in theirs.flat_map(|refused| &refused.by) {
                *first.by.entry(format!("p{other}")).or_default() += 1;
            }
        }
        first
    };
    let busiest = |(_, window_ms): &(u64, u64)| {
        users.iter().map(|user| busiest_of(*window_ms, *user)).max().unwrap_or(0)
    };
    Expected {
        requests: matched().count() as u64,
        refused: own.len() as u64,
        identities_refused: refused_users.len() as u64,
        busiest: policy.quotas.iter().map(busiest).collect(),
        refused_first: policy.quotas.iter().map(refused_first).collect(),
    }
}

fn config(policies: &[ModelPolicy]) -> String {
    let policy = |(index, policy): (usize, &ModelPolicy)| {
        let quotas: Vec<String> =
            policy.quotas.iter().map(|(units, ms)| format!("\"{units}/{ms}ms\"")).collect();
        let matched = if policy.only_uploads { "match = { path = \"/upload\" }\n" } else { "" };
        let rule = match &policy.rule {
            ModelRule::All => String::new(),
            ModelRule::Count(statuses) => format!("count = {{ status = {statuses:?} }}\n"),
            ModelRule::Refund(statuses) => format!("refund = {{ status = {statuses:?} }}\n"),
        };
        let cost = policy
            .hold
            .map(|hold| format!("cost = {{ response_json = \"usage.tokens\", hold = {hold} }}\n"));
        format!(
            "[[policy]]\nname = \"p{index}\"\nidentity = [\"user\"]\n{matched}quotas = [{}]\n{rule}{}",
            quotas.join(", "),
            cost.unwrap_or_default()
        )
    };
    policies.iter().enumerate().map(policy).collect()
}

fn csv(log: &[Sent]) -> String {
    let line = |request: &Sent| {
        let Sent { ms, user, cost, is_upload, status, response_cost } = request;
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |n| n.to_string());
        let (status, response_cost) = (number(status.map(u64::from)), number(*response_cost));
        let path = if *is_upload { "/upload" } else { "/" };
        format!("{},GET,{path},u{user},{cost},{status},{response_cost}\n", BEGIN_MS + ms)
    };
    let lines: String = log.iter().map(line).collect();
    format!("time,method,path,user,cost,status,response_cost\n{lines}")
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

fn refused_first_in(first: &Value) -> RefusedFirst {
    let by = first["by"].as_array().unwrap().iter();
    let by = by.map(|own| (own["policy"].as_str().unwrap().to_owned(), number(&own["requests"])));
    RefusedFirst { identities: number(&first["identities"]), by: by.collect() }
}

fn reported(report: &Value, policies: usize) -> Vec<Expected> {
    let policy = |index: usize| {
        let policy = &report["policies"][index];
        let quotas = policy["quotas"].as_array().unwrap();
        Expected {
            requests: number(&policy["requests"]),
            refused: number(&policy["refused"]),
            identities_refused: number(&policy["identities_refused"]),
            busiest: quotas.iter().map(|quota| number(&quota["never_refused"]["all"])).collect(),
            refused_first: quotas
                .iter()
                .map(|own| refused_first_in(&own["refused_first"]))
                .collect(),
        }
    };
    (0..policies).map(policy).collect()
}

fn any_log() -> impl Strategy<Value = Vec<Sent>> {
    // Ties in time are as likely as gaps longer than a window.
    let gap = prop_oneof![3 => Just(0_u64), 4 => 1..400_u64, 1 => 400..3000_u64];
    let status = prop::option::weighted(0.9, any_status());
    let response_cost = prop::option::weighted(0.8, 0..20_u64);
    let request = (gap, 0..4_u8, 1..4_u64, any::<bool>(), status, response_cost);
    prop::collection::vec(request, 1..120).prop_map(|requests| {
        let mut ms = 0;
        let sent =
            requests.into_iter().map(|(gap, user, cost, is_upload, status, response_cost)| {
                ms += gap;
                Sent { ms, user, cost, is_upload, status, response_cost }
            });
        sent.collect()
    })
}

fn any_status() -> impl Strategy<Value = u16> {
    prop::sample::select(vec![200_u16, 401, 499, 503])
}

fn any_rule() -> impl Strategy<Value = ModelRule> {
    let statuses = || prop::collection::vec(any_status(), 1..3);
    prop_oneof![
        2 => Just(ModelRule::All),
        1 => statuses().prop_map(ModelRule::Count),
        1 => statuses().prop_map(ModelRule::Refund),
    ]
}

fn any_policies() -> impl Strategy<Value = Vec<ModelPolicy>> {
    let quotas = (1..12_u64, 50..1500_u64, 2..30_u64, 1500..5000_u64);
    let hold = prop::option::weighted(0.3, 1..4_u64);
    let policy = (any::<bool>(), quotas, any_rule(), hold).prop_map(
        |(only_uploads, (units, ms, more, longer), rule, hold)| {
            // A hold that a quota can never have is an error.
            let hold = hold.map(|hold| hold.min(units).min(more));
            ModelPolicy { only_uploads, quotas: vec![(units, ms), (more, longer)], rule, hold }
        },
    );
    prop::collection::vec(policy, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn refusals_are_those_of_the_model(policies in any_policies(), log in any_log()) {
        let files = Files::with_config(&config(&policies));
        files.write("log.csv", csv(&log));
        let window_ms = policies[0].quotas[0].1;
        let fewest = policies[0].hold.unwrap_or(1);
        let range = format!("p0={fewest}/{window_ms}ms..16/{window_ms}ms");
        let report = files.json(&["--sweep", &range, "log.csv"]);
        let (mut expected, refused) = model(&policies, &log);
        for (own, policy) in expected.iter_mut().zip(&policies) {
            // Without requests there are no identities, and the report has no quotas.
            if own.requests == 0 {
                own.busiest.clear();
                own.refused_first.clear();
            }
            prop_assert!(policy.quotas.len() == 2);
        }
        prop_assert_eq!(reported(&report, policies.len()), expected);
        prop_assert_eq!(report["refused"].as_u64(), Some(refused));
        for step in report["sweep"]["steps"].as_array().unwrap() {
            let mut swept = policies.clone();
            swept[0].quotas[0].0 = number(&step["units"]);
            let own = model(&swept, &log).0.remove(0);
            prop_assert_eq!(number(&step["refused"]), own.refused);
            prop_assert_eq!(number(&step["identities_refused"]), own.identities_refused);
            prop_assert_eq!(&refused_first_in(&step["refused_first"]), &own.refused_first[0]);
        }
    }
}
