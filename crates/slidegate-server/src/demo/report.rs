//! Prints the introduction, and the result: what each client got, and whether every limit held.

use std::time::Duration;

use anyhow::ensure;
use slidegate::{Quota, Timestamp};

use super::clients::{
    BURSTER, CLIENTS, ClientLogs, ClientSpec, LoggedRequest, POLITE, RequestResult,
};
use super::server::DemoServer;
use crate::terminal::{BAD, FAINT, GOOD, STRONG};

/// What the demo is about, its clients, and commands to try.
pub(super) fn introduction(length: Duration, server: &DemoServer) -> String {
    let clients = CLIENTS.each_ref();
    let clients =
        clients.map(|client| format!("{:<17}{:<8}{}", client.name, client.quota, client.about));
    let clients = clients.join("\n           ");
    let DemoServer { gateway, admin, .. } = server;
    format!(
        "{STRONG}Slidegate demo: 20 per 10 s means at most 20 in any 10 s.{STRONG:#}

  A fixed window restarts its count every 10 s, and admits {BAD}40 of 20{BAD:#} around a
  restart: 20 just before it and 20 just after. The boundary burster tries that
  here, on a real gateway, for {seconds} seconds. Three other clients send beside it.

  clients  {clients}
  try      curl -i http://{gateway}/v1/reports
           curl -i -X POST http://{gateway}/login
           curl -s http://{admin}/metrics | grep rate_limit
  watch    http://{admin}/ in a browser

",
        seconds = length.as_secs(),
    )
}

/// What the clients' logs show.
#[derive(Debug)]
pub(super) struct Report {
    clients: Vec<ClientReport>,
    /// Requests that reached the API.
    reached: usize,
}

#[derive(Debug)]
struct ClientReport {
    name: &'static str,
    quota: Quota,
    sent: usize,
    admitted: usize,
    refused: usize,
    failed: usize,
    /// What 99 of 100 answers did not take longer than.
    p99: Duration,
    /// The most requests that were admitted in any interval of the quota's window.
    most: usize,
    /// The same for a fixed window with this quota.
    most_of_fixed_window: usize,
}

impl ClientReport {
    fn new(client: &ClientSpec, log: &[LoggedRequest]) -> Self {
        let quota: Quota = client.quota.parse().expect("the demo's quotas are valid");
        let sent = log.iter().map(|request| request.sent).collect();
        let with = |result| log.iter().filter(move |request| request.result == result);
        let admitted =
            with(RequestResult::Admitted).map(|request| (request.sent, request.answered));
        Self {
            name: client.name,
            quota,
            sent: log.len(),
            admitted: with(RequestResult::Admitted).count(),
            refused: with(RequestResult::Refused).count(),
            failed: with(RequestResult::Failed).count(),
            p99: p99(log),
            most: max_in_window(admitted, quota.window()),
            most_of_fixed_window: max_of_fixed_window(quota, sent),
        }
    }

    fn is_held(&self) -> bool {
        self.most <= self.quota.units().get() as usize
    }

    fn row(&self) -> String {
        let [sent, admitted, refused] = [self.sent, self.admitted, self.refused].map(grouped);
        let p99 = format!("{:.1} ms", self.p99.as_secs_f64() * 1000.0);
        let (units, window) = (self.quota.units(), self.quota.window().as_secs());
        let (style, verdict) = match self.is_held() {
            true => (GOOD, "held"),
            false => (BAD, "BROKEN"),
        };
        format!(
            "  {:<16}{sent:>7}{admitted:>10}{refused:>9}{p99:>9}{:>6} of {units:<3} in {window} s  \
             {style}{verdict}{style:#}\n",
            self.name, self.most,
        )
    }
}

/// Zero without answers.
fn p99(log: &[LoggedRequest]) -> Duration {
    let took = |request: &LoggedRequest| request.answered.saturating_since(request.sent);
    let mut times: Vec<Duration> = log.iter().map(took).collect();
    let rank = (times.len() * 99).div_ceil(100).checked_sub(1);
    rank.map_or(Duration::ZERO, |rank| *times.select_nth_unstable(rank).1)
}

impl Report {
    pub(super) fn new(logs: &ClientLogs, reached: usize) -> Self {
        let clients = CLIENTS.iter().zip(logs);
        Self { clients: clients.map(|(spec, log)| ClientReport::new(spec, log)).collect(), reached }
    }

    /// An error that names the first limit that did not hold.
    pub(super) fn verify(&self) -> anyhow::Result<()> {
        for client in &self.clients {
            let ClientReport { name, quota, most, .. } = client;
            ensure!(
                client.is_held(),
                "a limit did not hold: {name}, {most} admitted under {quota}"
            );
        }
        let unserved = self.clients[POLITE].refused + self.clients[POLITE].failed;
        ensure!(
            unserved == 0,
            "the polite free user kept to the plan, and had no answer to {unserved} of its requests",
        );
        Ok(())
    }

    /// What each client got, and the most in any window beside its quota.
    pub(super) fn table(&self) -> String {
        let headings = format!(
            "  {:<16}{:>7}{:>10}{:>9}{:>9}   {}",
            "client", "sent", "admitted", "refused", "p99", "most in any window",
        );
        let rule = "─".repeat(78);
        let rows: String = self.clients.iter().map(ClientReport::row).collect();
        format!("{STRONG}{headings}{STRONG:#}\n  {FAINT}{rule}{FAINT:#}\n{rows}")
    }

    /// How many requests were sent, and how many passed.
    pub(super) fn summary(&self) -> String {
        let sent = self.clients.iter().map(|client| client.sent).sum();
        format!("Of {} requests, {} reached the API.", grouped(sent), grouped(self.reached))
    }

    /// The table, and what it proves.
    pub(super) fn conclusion(&self) -> String {
        let (style, verified) = match self.verify() {
            Ok(()) => (GOOD, "Every limit held, and the polite user was never refused.".to_owned()),
            Err(error) => (BAD, error.to_string()),
        };
        format!(
            "{}
  Most in any window: counted from the clients' own logs, over every interval as
  long as the quota's window. {}

  {style}{verified}{style:#}
  {}
",
            self.table(),
            self.summary(),
            self.comparison(),
        )
    }

    fn comparison(&self) -> String {
        let burster = &self.clients[BURSTER];
        if burster.sent == 0 {
            return "The burster met no restart of a fixed window: run for 12 seconds.".to_owned();
        }
        format!(
            "Of the burster's requests a fixed window would have admitted {BAD}{} of 20{BAD:#} in \
             10 s.\n  Slidegate admitted {GOOD}{} of 20{GOOD:#}.",
            burster.most_of_fixed_window, burster.most,
        )
    }
}

/// The most requests that were certainly decided in one half-open interval of this length. Of each
/// it is known when it was sent and when it was answered: it was decided in between, so both have
/// to be within the interval.
///
/// Some fullest interval begins when a request was sent, so only those are tried.
fn max_in_window(
    requests: impl Iterator<Item = (Timestamp, Timestamp)>,
    window: Duration,
) -> usize {
    let mut requests: Vec<_> = requests.collect();
    requests.sort_unstable();
    let within = |(first, (sent, _)): (usize, &(Timestamp, Timestamp))| {
        let end = *sent + window;
        let begun = requests[first..].iter().take_while(|(sent, _)| *sent < end);
        begun.filter(|(_, answered)| *answered < end).count()
    };
    requests.iter().enumerate().map(within).max().unwrap_or(0)
}

/// The most that a fixed-window counter, which restarts from zero at every multiple of the window,
/// would have admitted in any interval of the window, had it been asked at these times.
fn max_of_fixed_window(quota: Quota, mut asked: Vec<Timestamp>) -> usize {
    asked.sort_unstable();
    let block = |at: &Timestamp| u128::from(at.as_nanos()) / quota.window().as_nanos();
    let admitted = asked
        .chunk_by(|one, next| block(one) == block(next))
        .flat_map(|in_block| in_block.iter().take(quota.units().get() as usize))
        .map(|&at| (at, at));
    max_in_window(admitted, quota.window())
}

/// With commas between thousands: `50,000`.
fn grouped(number: usize) -> String {
    match (number / 1000, number % 1000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{},{rest:03}", grouped(thousands)),
    }
}

#[cfg(test)]
mod tests {
    use anstream::adapter::strip_str;

    use super::*;

    const GUESSER: usize = 3;

    /// Clients that have sent a request at each of these milliseconds.
    fn report(requests: &[(usize, RequestResult, &[u64])]) -> Report {
        let log = |client: usize| {
            let own = requests.iter().filter(|(own, ..)| *own == client);
            let log = own.flat_map(|&(_, result, sent_ms)| {
                sent_ms.iter().map(move |&ms| {
                    let (sent, answered) = (Timestamp::from_millis(ms), Timestamp::from_millis(ms));
                    LoggedRequest { sent, answered, result }
                })
            });
            log.collect()
        };
        Report::new(&std::array::from_fn(log), 0)
    }

    fn check(requests: &[(usize, RequestResult, &[u64])], complaint: Option<&str>) -> String {
        let report = report(requests);
        let text = strip_str(&report.conclusion()).to_string();
        let error = report.verify().err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), complaint, "{text}");
        assert_eq!(text.contains("BROKEN"), complaint.is_some_and(|it| it.contains("hold")));
        assert_eq!(text.contains("Every limit held"), complaint.is_none());
        text
    }

    #[test]
    fn a_whole_quota_is_held() {
        let five: &[u64] = &[0, 1, 2, 3, 59_999, 60_000];
        let text = check(&[(GUESSER, RequestResult::Admitted, five)], None);
        assert!(text.contains("5 of 5   in 60 s  held"), "{text}");
    }

    #[test]
    fn one_request_too_many_is_found() {
        let six: &[u64] = &[0, 1, 2, 3, 4, 59_999];
        let complaint = "a limit did not hold: login guesser, 6 admitted under 5/min";
        let text = check(&[(GUESSER, RequestResult::Admitted, six)], Some(complaint));
        assert!(text.contains("6 of 5   in 60 s  BROKEN"), "{text}");
    }

    #[test]
    fn a_polite_user_is_to_be_served() {
        let complaint =
            "the polite free user kept to the plan, and had no answer to 1 of its requests";
        for result in [RequestResult::Refused, RequestResult::Failed] {
            check(&[(POLITE, result, &[0])], Some(complaint));
        }
    }

    #[test]
    fn a_fixed_window_is_shown_what_it_would_have_done() {
        let burst: Vec<u64> = (9_980..10_020).collect();
        let (admitted, refused) = burst.split_at(20);
        let requests = [
            (BURSTER, RequestResult::Admitted, admitted),
            (BURSTER, RequestResult::Refused, refused),
        ];
        let text = check(&requests, None);
        assert!(text.contains("20 of 20  in 10 s  held"), "{text}");
        assert!(text.contains("a fixed window would have admitted 40 of 20 in 10 s"), "{text}");
        assert!(text.ends_with("Slidegate admitted 20 of 20.\n"), "{text}");
    }

    #[test]
    fn every_result_is_counted_once() {
        use RequestResult::{Admitted, Failed, Refused};
        let results = [Admitted, Refused, Refused, Failed, Admitted];
        let report = report(&results.map(|result| (GUESSER, result, &[0][..])));
        let guesser = &report.clients[GUESSER];
        let ClientReport { sent, admitted, refused, failed, .. } = guesser;
        assert_eq!([*sent, *admitted, *refused, *failed], [5, 2, 2, 1]);
    }

    #[test]
    fn one_of_a_hundred_answers_may_take_longer() {
        let request = |ms| LoggedRequest {
            sent: Timestamp::from_millis(0),
            answered: Timestamp::from_millis(ms),
            result: RequestResult::Admitted,
        };
        let hundred: Vec<_> = (1..=100).map(request).collect();
        assert_eq!(p99(&hundred), Duration::from_millis(99));
        assert_eq!(p99(&hundred[..1]), Duration::from_millis(1));
        assert_eq!(p99(&[]), Duration::ZERO);
    }

    #[test]
    fn thousands_are_grouped() {
        let texts = [0, 999, 1000, 50_000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "50,000", "1,234,567"]);
    }

    const MINUTE: Duration = Duration::from_secs(60);

    fn check_most(spans_ms: &[(u64, u64)], expected: usize) {
        let at = Timestamp::from_millis;
        let spans = spans_ms.iter().map(|&(sent, answered)| (at(sent), at(answered)));
        assert_eq!(max_in_window(spans, MINUTE), expected, "{spans_ms:?}");
    }

    #[test]
    fn no_admissions_are_zero_in_any_interval() {
        check_most(&[], 0);
    }

    #[test]
    fn what_is_exactly_a_window_later_is_in_another_interval() {
        check_most(&[(0, 0), (60_000, 60_000)], 1);
        check_most(&[(0, 0), (59_999, 59_999)], 2);
        check_most(&[(1, 1), (60_000, 60_000), (60_001, 60_001)], 2);
    }

    #[test]
    fn what_happens_at_once_all_counts() {
        check_most(&[(5, 6), (5, 6), (5, 6)], 3);
    }

    #[test]
    fn fullest_interval_may_be_anywhere() {
        check_most(&[(0, 0), (100_000, 100_001), (130_000, 130_001), (159_998, 159_999)], 3);
        check_most(&[(59_000, 59_001), (0, 1), (61_000, 61_001), (60_500, 60_501)], 3);
    }

    #[test]
    fn what_may_have_happened_later_is_not_held_against_anyone() {
        check_most(&[(0, 0), (59_999, 60_001)], 1);
        check_most(&[(0, 0), (59_998, 59_999)], 2);
    }

    fn check_fixed(asked_ms: &[u64], expected: usize) {
        let quota: Quota = "2/10s".parse().unwrap();
        let asked = asked_ms.iter().copied().map(Timestamp::from_millis).collect();
        assert_eq!(max_of_fixed_window(quota, asked), expected, "{asked_ms:?}");
    }

    #[test]
    fn a_fixed_window_admits_the_units_and_no_more_within_a_block() {
        check_fixed(&[0, 1, 2, 9_999], 2);
        check_fixed(&[], 0);
    }

    #[test]
    fn a_fixed_window_admits_twice_the_units_around_a_restart() {
        check_fixed(&[9_997, 9_998, 9_999, 10_000, 10_001, 10_002], 4);
    }
}
