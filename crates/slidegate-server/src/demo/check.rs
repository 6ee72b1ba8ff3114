//! Whether the limits held: each quota beside the fullest interval of its length.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::{Context, ensure};
use slidegate::{Policies, Quota};

use super::client::{Client, Limit};
use super::fixed_window;
use super::log::{LoggedRequest, Outcome};
use super::max_in_window::{Span, most_within};
use super::stats::ClientStats;

/// A quota, and the most of it that any interval of its length saw.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Check {
    pub(super) quota: Quota,
    pub(super) most: usize,
}

/// All checks of a run.
#[derive(Debug)]
pub(super) struct Checks {
    /// Of each client, the one that came closest to its quota first.
    clients: Vec<(Client, Vec<Check>)>,
    /// The most that the flood guard let past of one address.
    pub(super) flood: Check,
    /// What the usual counter would have admitted of the burster's requests.
    pub(super) fixed_window: Check,
    /// Requests of the polite user that were not answered by the API.
    polite_unserved: usize,
}

impl Check {
    pub(super) fn is_held(&self) -> bool {
        self.most <= self.quota.units().get() as usize
    }
}

impl Checks {
    /// Finds out, from the records and the quotas that are in force.
    pub(super) fn new(policies: &Policies, stats: &[ClientStats]) -> anyhow::Result<Self> {
        let mut clients = Vec::new();
        for client_stats in stats {
            clients.push((client_stats.client, of_client(policies, client_stats)?));
        }
        let search = first_quota(policies, Limit::Policy("search"))?;
        let of = |client| stats.iter().filter(move |client_stats| client_stats.client == client);
        let asked = of(Client::Burster).flat_map(ClientStats::records).map(|record| record.sent);
        let most = fixed_window::most_admitted(search, asked.collect());
        let polite = of(Client::Polite).map(ClientStats::counts);
        Ok(Self {
            clients,
            flood: flood(first_quota(policies, Limit::Policy("flood"))?, stats),
            fixed_window: Check { quota: search, most },
            polite_unserved: polite.map(|counts| counts.refused + counts.failed).sum(),
        })
    }

    /// What came closest to its quota.
    pub(super) fn tightest(&self, client: Client) -> Option<Check> {
        let (_, checks) = self.clients.iter().find(|(whose, _)| *whose == client)?;
        checks.first().copied()
    }

    /// An error that names the first limit that did not hold.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        for (client, checks) in &self.clients {
            for check in checks {
                ensure_within(client.name(), check)?;
            }
        }
        ensure_within("flood guard", &self.flood)?;
        ensure!(
            self.polite_unserved == 0,
            "the polite free user kept to the plan, and had no answer to {} of its requests",
            self.polite_unserved,
        );
        Ok(())
    }
}

fn ensure_within(whose: &str, check: &Check) -> anyhow::Result<()> {
    let Check { quota, most } = check;
    ensure!(check.is_held(), "a limit did not hold: {whose}, {most} admitted under {quota}");
    Ok(())
}

fn of_client(policies: &Policies, client_stats: &ClientStats) -> anyhow::Result<Vec<Check>> {
    let mut checks = Vec::new();
    for &limit in client_stats.client.limits() {
        for quota in quotas(policies, limit)? {
            checks.push(Check { quota, most: most(client_stats.records(), quota, is_admitted) });
        }
    }
    // The share of the quota, and of equal ones the smaller quota.
    checks.sort_by(|one, other| {
        let units = |check: &Check| check.quota.units().get() as usize;
        let shares = (other.most * units(one)).cmp(&(one.most * units(other)));
        shares.then(units(one).cmp(&units(other)))
    });
    Ok(checks)
}

/// Its own denials count, but only what it lets past may not be more than its quota.
fn flood(quota: Quota, stats: &[ClientStats]) -> Check {
    let mut of_address: BTreeMap<Ipv4Addr, Vec<LoggedRequest>> = BTreeMap::new();
    for record in stats.iter().flat_map(ClientStats::records) {
        of_address.entry(record.address).or_default().push(*record);
    }
    let passed =
        |record: &LoggedRequest| matches!(record.outcome, Outcome::Admitted | Outcome::Refused);
    let most = of_address.values().map(|records| most(records, quota, passed)).max();
    Check { quota, most: most.unwrap_or(0) }
}

fn is_admitted(record: &LoggedRequest) -> bool {
    record.outcome == Outcome::Admitted
}

fn most(records: &[LoggedRequest], quota: Quota, counts: impl Fn(&LoggedRequest) -> bool) -> usize {
    let spans = records.iter().filter(|record| counts(record)).map(Span::of);
    most_within(spans, quota.window())
}

fn first_quota(policies: &Policies, limit: Limit) -> anyhow::Result<Quota> {
    quotas(policies, limit)?.first().copied().with_context(|| format!("{limit:?} has no quota"))
}

/// The quotas of a plan or a policy.
pub(super) fn quotas(policies: &Policies, limit: Limit) -> anyhow::Result<Vec<Quota>> {
    let quotas = match limit {
        Limit::Plan(name) => {
            let plans = policies.plans();
            let plan = plans.into_iter().find(|plan| &**plan.name() == name);
            plan.map(|plan| plan.quotas().to_vec())
        }
        Limit::Policy(name) => {
            let policy = policies.iter().find(|policy| &*policy.name == name);
            policy.map(|policy| policy.quotas().to_vec())
        }
    };
    quotas.with_context(|| format!("the demo's configuration has no {limit:?}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use slidegate::{Plan, Policy, Timestamp};

    use super::*;
    use crate::demo::log::RequestLog;
    use crate::demo::table;
    use crate::terminal::Paint;

    fn policies() -> Policies {
        let policy = |name, quota: &str| Policy::new(name).quota(quota.parse::<Quota>().unwrap());
        Policies::builder()
            .plan(Plan::new("free", [Quota::per_minute(60), Quota::per_day(10_000)]))
            .plan(Plan::new("pro", [Quota::per_minute(600), Quota::per_day(100_000)]))
            .policy(policy("flood", "50/s"))
            .policy(policy("search", "20/10s"))
            .policy(policy("login", "5/min"))
            .policy(Policy::new("api").plans("free"))
            .build()
            .unwrap()
    }

    /// Clients that have sent a request at each of these milliseconds.
    fn stats(records: &[(Client, Outcome, &[u64])]) -> Vec<ClientStats> {
        let client_stats = |client: Client| {
            let log = Arc::new(RequestLog::default());
            for &(_, outcome, sent_ms) in records.iter().filter(|(whose, ..)| *whose == client) {
                for &ms in sent_ms {
                    let (sent, answered) = (Timestamp::from_millis(ms), Timestamp::from_millis(ms));
                    let address = client.call(0).address;
                    log.add(LoggedRequest { address, sent, answered, outcome });
                }
            }
            let mut client_stats = ClientStats::new(client, log);
            client_stats.look();
            client_stats
        };
        Client::ALL.map(client_stats).into()
    }

    fn check(records: &[(Client, Outcome, &[u64])], complaint: Option<&str>) -> String {
        let stats = stats(records);
        let checks = Checks::new(&policies(), &stats).unwrap();
        let text = table::draw(Paint::Plain, &stats, &checks, 0);
        let error = checks.check().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), complaint, "{text}");
        assert_eq!(text.contains("BROKEN"), complaint.is_some_and(|it| it.contains("hold")));
        assert_eq!(text.contains("Every limit held"), complaint.is_none());
        text
    }

    #[test]
    fn a_whole_quota_is_held() {
        let five: &[u64] = &[0, 1, 2, 3, 59_999, 60_000];
        let text = check(&[(Client::Guesser, Outcome::Admitted, five)], None);
        assert!(text.contains("5 of 5   in 60 s  held"), "{text}");
    }

    #[test]
    fn one_request_too_many_is_found() {
        let six: &[u64] = &[0, 1, 2, 3, 4, 59_999];
        let complaint = "a limit did not hold: login guesser, 6 admitted under 5/min";
        let text = check(&[(Client::Guesser, Outcome::Admitted, six)], Some(complaint));
        assert!(text.contains("6 of 5   in 60 s  BROKEN"), "{text}");
    }

    #[test]
    fn what_passes_the_flood_guard_counts_for_it_though_others_refuse_it() {
        let fifty_one: Vec<u64> = (0..51).collect();
        check(&[(Client::Guesser, Outcome::Flood, &fifty_one)], None);
        let complaint = "a limit did not hold: flood guard, 51 admitted under 50/s";
        check(&[(Client::Guesser, Outcome::Refused, &fifty_one)], Some(complaint));
    }

    #[test]
    fn a_polite_user_is_to_be_served() {
        let complaint =
            "the polite free user kept to the plan, and had no answer to 1 of its requests";
        for outcome in [Outcome::Refused, Outcome::Failed] {
            check(&[(Client::Polite, outcome, &[0])], Some(complaint));
        }
    }

    #[test]
    fn the_usual_counter_is_shown_what_it_would_have_done() {
        let burst: Vec<u64> = (9_980..10_020).collect();
        let (admitted, refused) = burst.split_at(20);
        let records = [
            (Client::Burster, Outcome::Admitted, admitted),
            (Client::Burster, Outcome::Refused, refused),
        ];
        let text = check(&records, None);
        assert!(text.contains("20 of 20  in 10 s  held"), "{text}");
        assert!(text.contains("would have given the burster 40 of 20."), "{text}");
    }
}
