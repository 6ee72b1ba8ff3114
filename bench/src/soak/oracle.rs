//! Judges the log by brute force: what was admitted in any window, and what became of each request.

use std::collections::BTreeMap;
use std::time::Duration;

use super::log::{Exchange, Outcome};
use super::rules::{Rule, Window};

/// A request in flight while a reload is reported may be decided by the units before, and one from
/// a lease by units that were prefetched before.
const RELOAD_GRACE: Duration = Duration::from_secs(1);
/// The gateway may notice a moment after the upstream is back.
const UPSTREAM_GRACE: Duration = Duration::from_secs(2);

/// The faults, on the clock of the log.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// From a fault of Redis until the gateway counts there again.
    pub redis: Vec<Span>,
    /// While the upstream was down.
    pub upstream: Vec<Span>,
    /// The versions of the configuration. The first is in force from the beginning.
    pub reloads: Vec<Reload>,
}

#[derive(Debug, Clone, Copy)]
pub struct Span {
    pub began: Duration,
    pub ended: Duration,
}

/// A version that came into force at some time between the two.
#[derive(Debug, Clone, Copy)]
pub struct Reload {
    pub version: usize,
    pub asked: Duration,
    pub done: Duration,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Verdict {
    pub requests: usize,
    pub admitted: usize,
    pub refused: usize,
    pub aborted: usize,
    /// Requests that a fault explains: broken or answered with 5xx while the upstream was down, and
    /// answered with 503 by a policy that denies without Redis.
    pub by_upstream: usize,
    pub by_redis: usize,
    /// Requests that arrived upstream twice, because the first connection was closed.
    pub repeated: usize,
    pub accounts: usize,
    /// Units above the quota in some window, of the worst window of each account, beyond what is
    /// promised.
    pub over_admitted: u32,
    /// The most units above the quota that a fault of Redis explains.
    pub beyond_in_faults: u32,
    /// Requests without a complete response that no fault explains.
    pub lost: usize,
    /// Responses of other requests.
    pub foreign: usize,
    /// One sentence for each of the above, and for other broken promises.
    pub complaints: Vec<String>,
}

/// Units that were spent at some instant between the two.
#[derive(Debug, Clone, Copy)]
struct Admission {
    sent: Duration,
    arrived: Duration,
    units: u32,
}

/// Judges the whole run.
pub fn judge(exchanges: &[Exchange], faults: &Faults) -> Verdict {
    let mut verdict = Verdict { requests: exchanges.len(), ..Verdict::default() };
    for (number, exchange) in exchanges.iter().enumerate() {
        verdict.judge_response(number, exchange, faults);
    }
    let mut accounts: BTreeMap<(Rule, u32), Vec<&Exchange>> = BTreeMap::new();
    for exchange in exchanges {
        accounts.entry((exchange.rule, exchange.account)).or_default().push(exchange);
        accounts.entry((Rule::Flood, exchange.address)).or_default().push(exchange);
    }
    verdict.accounts = accounts.len();
    for ((rule, account), exchanges) in accounts {
        for window in rule.windows() {
            verdict.judge_account(rule, account, window, &exchanges, faults);
        }
    }
    verdict
}

impl Verdict {
    fn judge_response(&mut self, number: usize, exchange: &Exchange, faults: &Faults) {
        let Exchange { rule, sent, ended, arrivals, outcome, .. } = *exchange;
        let ended = ended.unwrap_or(Duration::MAX);
        let upstream_was_down = touches(&faults.upstream, sent, ended, UPSTREAM_GRACE);
        let redis_was_down = touches(&faults.redis, sent, ended, Duration::ZERO);
        let mut complain = |what: &str| {
            let at = sent.as_secs_f64();
            self.complaints.push(format!(
                "request {number} for {rule:?}, sent at {at:.2} s, {what}: {outcome:?}, arrived \
                 {arrivals} times"
            ));
        };
        match outcome {
            Outcome::Answered(200 | 101 | 401) => {
                self.admitted += 1;
                if exchange.arrived.is_none() {
                    complain("was answered without having arrived");
                }
            }
            Outcome::Answered(429) => {
                self.refused += 1;
                if exchange.arrived.is_some() {
                    complain("was refused and arrived");
                }
            }
            Outcome::Answered(502..=504) | Outcome::Broken if upstream_was_down => {
                self.by_upstream += 1;
            }
            Outcome::Answered(503) if rule == Rule::Strict && redis_was_down => self.by_redis += 1,
            Outcome::Aborted => self.aborted += 1,
            Outcome::Foreign => {
                complain("got the response of another");
                self.foreign += 1;
            }
            Outcome::Pending | Outcome::Broken | Outcome::Answered(_) => {
                complain("was lost");
                self.lost += 1;
            }
        }
        if arrivals > 1 {
            self.repeated += 1;
            if !upstream_was_down {
                let what = format!("request {number} for {rule:?} arrived {arrivals} times");
                self.complaints.push(what);
            }
        }
    }

    fn judge_account(
        &mut self,
        rule: Rule,
        account: u32,
        window: &Window,
        exchanges: &[&Exchange],
        faults: &Faults,
    ) {
        let mut admissions: Vec<Admission> =
            exchanges.iter().filter_map(|exchange| admission(rule, exchange)).collect();
        admissions.sort_unstable_by_key(|admission| admission.sent);
        let least = window.units.iter().copied().min().unwrap_or_default();
        let mut worst = (0, Duration::ZERO);
        for (first, Admission { sent: begin, .. }) in admissions.iter().enumerate() {
            let end = *begin + window.length;
            let (mut units, mut last_arrived) = (0, Duration::ZERO);
            for last in admissions[first..].iter().take_while(|last| last.sent < end) {
                if last.arrived >= end {
                    continue;
                }
                units += last.units;
                last_arrived = last_arrived.max(last.arrived);
                if units <= least {
                    continue;
                }
                // The last of them was decided between these two, and then the others counted.
                let quota = faults.units(window, last.sent, last_arrived);
                let beyond = units.saturating_sub(quota);
                if beyond == 0 {
                    continue;
                }
                let explained = match rule.is_local() || rule == Rule::Strict {
                    true => 0,
                    false => faults.explained(exchanges, *begin, last_arrived),
                };
                self.beyond_in_faults = self.beyond_in_faults.max(beyond.min(explained));
                let beyond = beyond.saturating_sub(explained);
                if beyond > worst.0 {
                    worst = (beyond, *begin);
                }
            }
        }
        let (beyond, at) = worst;
        if beyond > 0 {
            self.over_admitted += beyond;
            self.complaints.push(format!(
                "{rule:?} admitted {beyond} units above its quota to account {account}, in the \
                 {} s from {:.2} s on",
                window.length.as_secs(),
                at.as_secs_f64()
            ));
        }
    }
}

/// What a request has spent of a rule for certain.
fn admission(rule: Rule, exchange: &Exchange) -> Option<Admission> {
    let Exchange { sent, arrived, outcome, units, .. } = *exchange;
    let is_counted = rule != Rule::Login || outcome == Outcome::Answered(401);
    // A local policy counts requests.
    let units = if rule == Rule::Flood { 1 } else { units };
    arrived.filter(|_| is_counted).map(|arrived| Admission { sent, arrived, units })
}

impl Faults {
    /// The most units that may have been in force at some instant between the two.
    fn units(&self, window: &Window, from: Duration, to: Duration) -> u32 {
        let over = |reload: &Reload| reload.done + RELOAD_GRACE < from;
        let first = self.reloads.partition_point(over).saturating_sub(1);
        let end = self.reloads.partition_point(|reload| reload.asked <= to);
        let in_force = self.reloads[first..end].iter().map(|reload| window.units[reload.version]);
        in_force.max().unwrap_or_default()
    }

    /// The units above the quota that faults explain: beside the quota, a gateway that loses Redis
    /// admits at most what it has in flight for the account.
    fn explained(&self, exchanges: &[&Exchange], from: Duration, to: Duration) -> u32 {
        let first = self.redis.partition_point(|span| span.ended < from);
        let spans = self.redis[first..].iter().take_while(|span| span.began <= to);
        spans.map(|span| most_in_flight(exchanges, *span)).max().unwrap_or_default()
    }
}

/// The most units that an account had in flight at one time during a fault.
fn most_in_flight(exchanges: &[&Exchange], span: Span) -> u32 {
    let first = exchanges.partition_point(|exchange| exchange.sent + LONGEST < span.began);
    let begun = exchanges[first..].iter().take_while(|exchange| exchange.sent <= span.ended);
    let meanwhile: Vec<_> = begun
        .map(|exchange| (exchange, exchange.arrived.or(exchange.ended).unwrap_or(exchange.sent)))
        .filter(|(_, decided)| *decided >= span.began)
        .collect();
    let at = |instant: Duration| {
        let in_flight = meanwhile
            .iter()
            .filter(|(exchange, decided)| exchange.sent <= instant && *decided >= instant);
        in_flight.map(|(exchange, _)| exchange.units).sum()
    };
    meanwhile.iter().map(|(exchange, _)| at(exchange.sent)).max().unwrap_or_default()
}

/// No decision takes longer; looking further back would only take time.
const LONGEST: Duration = Duration::from_secs(30);

fn touches(spans: &[Span], from: Duration, to: Duration, grace: Duration) -> bool {
    spans.iter().any(|span| span.began <= to && span.ended + grace >= from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUOTA: u32 = 20;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn faults() -> Faults {
        let reload = Reload { version: 0, asked: ms(0), done: ms(0) };
        Faults { reloads: vec![reload], ..Faults::default() }
    }

    fn exchange(sent_ms: u64, arrived: bool, outcome: Outcome) -> Exchange {
        Exchange {
            rule: Rule::Address,
            account: 1,
            address: 1,
            sent: ms(sent_ms),
            arrived: arrived.then(|| ms(sent_ms + 2)),
            arrivals: arrived.into(),
            ended: Some(ms(sent_ms + 5)),
            outcome,
            units: 1,
        }
    }

    fn admitted(sent_ms: u64) -> Exchange {
        exchange(sent_ms, true, Outcome::Answered(200))
    }

    /// So many requests, one every 100 ms.
    fn row(requests: u32) -> Vec<Exchange> {
        (0..u64::from(requests)).map(|request| admitted(request * 100)).collect()
    }

    fn over_admitted(exchanges: &[Exchange], faults: &Faults) -> u32 {
        let verdict = judge(exchanges, faults);
        assert_eq!(verdict.over_admitted > 0, !verdict.complaints.is_empty(), "{verdict:?}");
        verdict.over_admitted
    }

    #[test]
    fn one_unit_above_the_quota_is_found_and_none_where_there_is_none() {
        assert_eq!(over_admitted(&row(QUOTA), &faults()), 0);
        assert_eq!(over_admitted(&row(QUOTA + 1), &faults()), 1);
        let mut later = row(QUOTA);
        later.push(admitted(5010));
        assert_eq!(over_admitted(&later, &faults()), 0, "the first one has left its window");
        later.push(admitted(5050));
        assert_eq!(over_admitted(&later, &faults()), 1, "the second one has not");
        let refused = exchange(2500, false, Outcome::Answered(429));
        assert_eq!(over_admitted(&[row(QUOTA), vec![refused]].concat(), &faults()), 0);
        let aborted = exchange(2500, true, Outcome::Aborted);
        assert_eq!(over_admitted(&[row(QUOTA), vec![aborted]].concat(), &faults()), 1);
    }

    #[test]
    fn every_address_is_judged_by_the_flood_guard_as_well() {
        let exchanges: Vec<Exchange> =
            (0..41).map(|account| Exchange { account, ..admitted(u64::from(account)) }).collect();
        assert_eq!(over_admitted(&exchanges, &faults()), 1);
        assert_eq!(over_admitted(&exchanges[1..], &faults()), 0);
    }

    #[test]
    fn only_counted_responses_and_settled_units_are_spent() {
        let login = |status| {
            move |it: Exchange| Exchange {
                rule: Rule::Login,
                outcome: Outcome::Answered(status),
                ..it
            }
        };
        let logins = |status| row(6).into_iter().map(login(status)).collect::<Vec<_>>();
        assert_eq!(over_admitted(&logins(200), &faults()), 0);
        assert_eq!(over_admitted(&logins(401), &faults()), 1);
        let tokens = |units| {
            let token = |it| Exchange { rule: Rule::Tokens, units, ..it };
            row(4).into_iter().map(token).collect::<Vec<_>>()
        };
        assert_eq!(over_admitted(&tokens(500), &faults()), 0);
        assert_eq!(over_admitted(&tokens(501), &faults()), 4);
    }

    #[test]
    fn units_are_those_that_were_in_force() {
        let reload = |version, at| Reload { version, asked: ms(at), done: ms(at + 50) };
        let with = |reload| Faults { reloads: vec![faults().reloads[0], reload], ..faults() };
        // 30 units in version 1, and 12 in version 2.
        assert_eq!(over_admitted(&row(30), &with(reload(1, 1500))), 0);
        assert_eq!(over_admitted(&row(31), &with(reload(1, 1500))), 1);
        assert_eq!(over_admitted(&row(30), &with(reload(1, 2500))), 5, "the 25th came before");
        let lowered = with(reload(2, 1000));
        assert_eq!(over_admitted(&row(20), &lowered), 0, "within a second of the reload");
        assert_eq!(over_admitted(&row(24), &lowered), 12);
        let mut history = row(20);
        history.push(admitted(9000));
        assert_eq!(over_admitted(&history, &with(reload(2, 4000))), 0, "what was admitted stays");
    }

    #[test]
    fn an_outage_explains_what_was_in_flight_and_no_more() {
        let outage = Span { began: ms(1000), ended: ms(3000) };
        let faults = Faults { redis: vec![outage], ..faults() };
        assert_eq!(over_admitted(&row(QUOTA + 1), &faults), 0, "one is in flight at a time");
        assert_eq!(over_admitted(&row(QUOTA + 2), &faults), 1);
        let strict = |it| Exchange { rule: Rule::Strict, ..it };
        let exchanges: Vec<_> = row(16).into_iter().map(strict).collect();
        assert_eq!(over_admitted(&exchanges, &faults), 1, "it has no units without Redis");
    }

    #[test]
    fn every_request_has_one_response_of_its_own() {
        let upstream = Span { began: ms(10_000), ended: ms(11_000) };
        let redis = Span { began: ms(20_000), ended: ms(21_000) };
        let faults = Faults { upstream: vec![upstream], redis: vec![redis], ..faults() };
        let strict = |it| Exchange { rule: Rule::Strict, ..it };
        let twice = |it| Exchange { arrivals: 2, ..it };
        let (ok, bad) = (Outcome::Answered(200), Outcome::Answered(502));
        let unavailable = Outcome::Answered(503);
        // A request, how many are lost, and how many sentences are said about it.
        for (exchange, lost, complaints) in [
            (exchange(0, true, ok), 0, 0),
            (exchange(0, false, ok), 0, 1),
            (exchange(0, false, Outcome::Answered(429)), 0, 0),
            (exchange(0, true, Outcome::Answered(429)), 0, 1),
            (exchange(0, true, Outcome::Foreign), 0, 1),
            (exchange(0, true, Outcome::Aborted), 0, 0),
            (exchange(0, false, Outcome::Pending), 1, 1),
            (exchange(0, true, Outcome::Broken), 1, 1),
            (exchange(10_500, true, Outcome::Broken), 0, 0),
            (exchange(0, false, bad), 1, 1),
            (exchange(10_500, false, bad), 0, 0),
            (exchange(20_500, false, bad), 1, 1),
            (exchange(20_500, false, unavailable), 1, 1),
            (strict(exchange(20_500, false, unavailable)), 0, 0),
            (strict(exchange(0, false, unavailable)), 1, 1),
            (exchange(0, false, Outcome::Answered(400)), 1, 1),
            (twice(exchange(0, true, ok)), 0, 1),
            (twice(exchange(10_500, true, ok)), 0, 0),
        ] {
            let verdict = judge(std::slice::from_ref(&exchange), &faults);
            assert_eq!(verdict.lost, lost, "{exchange:?}");
            assert_eq!(verdict.complaints.len(), complaints, "{exchange:?}: {verdict:?}");
        }
    }
}
