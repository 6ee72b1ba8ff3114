//! Random logs, decided by the command and by a model that shares no code with it.

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
}

/// A policy as the model has it: units and window in milliseconds.
#[derive(Debug, Clone)]
struct ModelPolicy {
    only_uploads: bool,
    quotas: Vec<(u64, u64)>,
}

/// What the model expects of a policy.
#[derive(Debug, PartialEq, Eq)]
struct Expected {
    requests: u64,
    refused: u64,
    identities_refused: u64,
    /// For each quota, the busiest window of any user.
    busiest: Vec<u64>,
}

const BEGIN_MS: u64 = 1_767_225_600_000;

impl ModelPolicy {
    fn is_for(&self, request: &Sent) -> bool {
        request.is_upload || !self.only_uploads
    }

    /// Whether it has room, given all that was admitted before.
    fn has_room(&self, request: &Sent, admitted: &[Sent]) -> bool {
        self.quotas.iter().all(|(units, window_ms)| {
            let spent = admitted.iter().filter(|other| {
                self.is_for(other)
                    && other.user == request.user
                    && other.ms + window_ms > request.ms
            });
            spent.map(|other| other.cost).sum::<u64>() + request.cost <= *units
        })
    }

    fn can_ever_pay(&self, request: &Sent) -> bool {
        self.quotas.iter().all(|(units, _)| request.cost <= *units)
    }

    fn busiest(&self, window_ms: u64, log: &[Sent]) -> u64 {
        let own = |request: &&Sent| self.is_for(request);
        let in_window = |(index, last): (usize, &Sent)| -> u64 {
            let others = log[..=index].iter().filter(own);
            let same =
                others.filter(|other| other.user == last.user && other.ms + window_ms > last.ms);
            same.map(|other| other.cost).sum()
        };
        let ends = log.iter().enumerate().filter(|(_, request)| self.is_for(request));
        ends.map(in_window).max().unwrap_or(0)
    }
}

/// Decides every request by looking at all that was admitted before it. Returns what each policy
/// refuses, and how many requests are refused in all.
fn model(policies: &[ModelPolicy], log: &[Sent]) -> (Vec<Expected>, u64) {
    let mut admitted: Vec<Sent> = Vec::new();
    let mut refusals: Vec<Vec<u8>> = vec![Vec::new(); policies.len()];
    let mut refused = 0;
    for request in log {
        let is_for = |policy: &&ModelPolicy| policy.is_for(request);
        let is_too_costly = !policies.iter().filter(is_for).all(|own| own.can_ever_pay(request));
        let refuses = |policy: &ModelPolicy| match is_too_costly {
            true => !policy.can_ever_pay(request),
            false => !policy.has_room(request, &admitted),
        };
        let verdicts: Vec<bool> =
            policies.iter().map(|policy| policy.is_for(request) && refuses(policy)).collect();
        match verdicts.contains(&true) {
            true => refused += 1,
            false => admitted.push(request.clone()),
        }
        for (own, _) in refusals.iter_mut().zip(verdicts).filter(|(_, refuses)| *refuses) {
            own.push(request.user);
        }
    }
    let expected = policies.iter().zip(refusals).map(|(policy, mut users)| {
        let refused = users.len() as u64;
        users.sort_unstable();
        users.dedup();
        Expected {
            requests: log.iter().filter(|request| policy.is_for(request)).count() as u64,
            refused,
            identities_refused: users.len() as u64,
            busiest: policy.quotas.iter().map(|(_, window)| policy.busiest(*window, log)).collect(),
        }
    });
    (expected.collect(), refused)
}

fn config(policies: &[ModelPolicy]) -> String {
    let policy = |(index, policy): (usize, &ModelPolicy)| {
        let quotas: Vec<String> =
            policy.quotas.iter().map(|(units, ms)| format!("\"{units}/{ms}ms\"")).collect();
        let matched = if policy.only_uploads { "match = { path = \"/upload\" }\n" } else { "" };
        format!(
            "[[policy]]\nname = \"p{index}\"\nidentity = [\"user\"]\n{matched}quotas = [{}]\n",
            quotas.join(", ")
        )
    };
    policies.iter().enumerate().map(policy).collect()
}

fn csv(log: &[Sent]) -> String {
    let line = |request: &Sent| {
        let Sent { ms, user, cost, is_upload } = request;
        let path = if *is_upload { "/upload" } else { "/" };
        format!("{},GET,{path},u{user},{cost}\n", BEGIN_MS + ms)
    };
    let lines: String = log.iter().map(line).collect();
    format!("time,method,path,user,cost\n{lines}")
}

fn told(report: &Value, policies: usize) -> Vec<Expected> {
    let number = |value: &Value| value.as_u64().unwrap();
    let policy = |index: usize| {
        let policy = &report["policies"][index];
        let quotas = policy["quotas"].as_array().unwrap();
        Expected {
            requests: number(&policy["requests"]),
            refused: number(&policy["refused"]),
            identities_refused: number(&policy["identities_refused"]),
            busiest: quotas.iter().map(|quota| number(&quota["never_refused"]["all"])).collect(),
        }
    };
    (0..policies).map(policy).collect()
}

fn any_log() -> impl Strategy<Value = Vec<Sent>> {
    // Ties in time are as likely as gaps longer than a window.
    let gap = prop_oneof![3 => Just(0_u64), 4 => 1..400_u64, 1 => 400..3000_u64];
    let request = (gap, 0..4_u8, 1..4_u64, any::<bool>());
    prop::collection::vec(request, 1..120).prop_map(|requests| {
        let mut ms = 0;
        let sent = requests.into_iter().map(|(gap, user, cost, is_upload)| {
            ms += gap;
            Sent { ms, user, cost, is_upload }
        });
        sent.collect()
    })
}

fn any_policies() -> impl Strategy<Value = Vec<ModelPolicy>> {
    let quotas = (1..12_u64, 50..1500_u64, 2..30_u64, 1500..5000_u64);
    let policy = (any::<bool>(), quotas).prop_map(|(only_uploads, (units, ms, more, longer))| {
        ModelPolicy { only_uploads, quotas: vec![(units, ms), (more, longer)] }
    });
    prop::collection::vec(policy, 1..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn refusals_are_those_of_the_model(policies in any_policies(), log in any_log()) {
        let files = Files::with_config(&config(&policies));
        files.write("log.csv", csv(&log));
        let report = files.json(&["log.csv"]);
        let (mut expected, refused) = model(&policies, &log);
        for (own, policy) in expected.iter_mut().zip(&policies) {
            // Without requests there are no identities, and nothing is said of quotas.
            if own.requests == 0 {
                own.busiest.clear();
            }
            prop_assert!(policy.quotas.len() == 2);
        }
        prop_assert_eq!(told(&report, policies.len()), expected);
        prop_assert_eq!(report["refused"].as_u64(), Some(refused));
    }
}
