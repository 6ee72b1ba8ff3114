//! What is known of a client so far, in figures.

use std::sync::Arc;
use std::time::Duration;

use slidegate::Timestamp;

use super::client::Client;
use super::log::{LoggedRequest, Outcome, RequestLog};

/// A client, and all that it has written down up to the last look.
#[derive(Debug)]
pub(super) struct ClientStats {
    pub(super) client: Client,
    log: Arc<RequestLog>,
    records: Vec<LoggedRequest>,
}

/// How many requests of each kind there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) sent: usize,
    pub(super) admitted: usize,
    pub(super) refused: usize,
    pub(super) failed: usize,
}

impl ClientStats {
    pub(super) fn new(client: Client, log: Arc<RequestLog>) -> Self {
        Self { client, log, records: Vec::new() }
    }

    /// Looks at what is new.
    pub(super) fn look(&mut self) {
        self.records.extend(self.log.after(self.records.len()));
    }

    pub(super) fn records(&self) -> &[LoggedRequest] {
        &self.records
    }

    pub(super) fn counts(&self) -> Counts {
        Counts::of(&self.records)
    }

    /// Of what was answered since then.
    pub(super) fn counts_since(&self, then: Timestamp) -> Counts {
        // Several connections write down their answers, so the order is right but for a hair.
        let recent = self.records.iter().rev().take_while(|record| record.answered >= then);
        Counts::of(recent)
    }

    /// What 99 of 100 answers did not take longer than; none without answers.
    pub(super) fn p99(&self) -> Option<Duration> {
        let mut times: Vec<Duration> = self.records.iter().map(LoggedRequest::took).collect();
        let rank = (times.len() * 99).div_ceil(100).checked_sub(1)?;
        Some(*times.select_nth_unstable(rank).1)
    }
}

impl Counts {
    fn of<'r>(records: impl IntoIterator<Item = &'r LoggedRequest>) -> Self {
        records.into_iter().fold(Self::default(), |mut counts, record| {
            counts.sent += 1;
            match record.outcome {
                Outcome::Admitted => counts.admitted += 1,
                Outcome::Flood | Outcome::Refused => counts.refused += 1,
                Outcome::Failed => counts.failed += 1,
            }
            counts
        })
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn client_stats(records: &[(u64, u64, Outcome)]) -> ClientStats {
        let log = Arc::new(RequestLog::default());
        let mut client_stats = ClientStats::new(Client::Polite, log.clone());
        for &(sent, answered, outcome) in records {
            let (sent, answered) = (Timestamp::from_millis(sent), Timestamp::from_millis(answered));
            log.add(LoggedRequest { address: Ipv4Addr::LOCALHOST, sent, answered, outcome });
            client_stats.look();
        }
        client_stats
    }

    #[test]
    fn every_outcome_is_counted_once() {
        use Outcome::{Admitted, Failed, Flood, Refused};
        let client_stats = client_stats(&[
            (0, 1, Admitted),
            (1, 2, Flood),
            (2, 3, Refused),
            (3, 9, Failed),
            (9, 10, Admitted),
        ]);
        assert_eq!(client_stats.counts(), Counts { sent: 5, admitted: 2, refused: 2, failed: 1 });
        let recent = client_stats.counts_since(Timestamp::from_millis(9));
        assert_eq!(recent, Counts { sent: 2, admitted: 1, refused: 0, failed: 1 });
    }

    #[test]
    fn one_of_a_hundred_answers_may_take_longer() {
        let hundred: Vec<_> = (1..=100).map(|ms| (0, ms, Outcome::Admitted)).collect();
        assert_eq!(client_stats(&hundred).p99(), Some(Duration::from_millis(99)));
        assert_eq!(client_stats(&hundred[..1]).p99(), Some(Duration::from_millis(1)));
        assert_eq!(client_stats(&[]).p99(), None);
    }
}
