//! What was seen of all limiters.

use super::peers::{Peer, Store};
use super::retry::RetryAfter;

/// What was seen of one limiter.
pub struct Seen {
    /// The most that was certainly admitted in one window.
    pub most: usize,
    /// What was admitted, divided by what an exact limiter would have admitted.
    pub used: f64,
    pub retry_after: RetryAfter,
}

/// A limiter, with its version and what was seen, or why it was skipped.
pub struct Row {
    pub peer: Peer,
    pub result: Result<(String, Seen), String>,
}

impl Row {
    pub fn is_ours(&self) -> bool {
        matches!(self.peer, Peer::Slidegate(_))
    }

    pub fn seen(&self) -> Option<&Seen> {
        self.result.as_ref().ok().map(|(_, seen)| seen)
    }

    fn markdown(&self) -> String {
        let (name, setting) = (self.peer.name(), self.peer.setting());
        let name = if self.is_ours() { format!("**{name}**") } else { name.to_owned() };
        match &self.result {
            Ok((version, Seen { most, used, retry_after })) => {
                format!("| {name} | {version} | {setting} | {most} | {used:.2} | {retry_after} |")
            }
            Err(why) => format!("| {name} | skipped: {why} | {setting} | – | – | – |"),
        }
    }
}

pub fn markdown(rows: &[Row]) -> String {
    let head = "| limiter | version | set to | most in any 2 s | share used \
                | Retry-After kept |\n|---|---|---|---|---|---|";
    let lines = rows.iter().map(Row::markdown);
    [head.to_owned()].into_iter().chain(lines).collect::<Vec<_>>().join("\n")
}

pub fn result(rows: &[Row]) -> String {
    let seen = |is_ours: bool| {
        let rows = rows.iter().filter(move |row| row.is_ours() == is_ours);
        rows.filter_map(Row::seen)
    };
    let most = |is_ours| seen(is_ours).map(|seen| seen.most).max();
    let figure = |most: Option<usize>| most.map_or("-".to_owned(), |most| most.to_string());
    let used = |has_leases: bool| {
        let is_async = |row: &&Row| row.peer == Peer::Slidegate(Store::TwoOnRedisAsync);
        let rows = rows.iter().filter(|row| row.is_ours() && is_async(row) == has_leases);
        let least = rows.filter_map(Row::seen).map(|seen| seen.used).min_by(f64::total_cmp);
        least.map_or("-".to_owned(), |used| format!("{used:.2}"))
    };
    let kept = |is_ours| {
        let kept = seen(is_ours).filter(|seen| seen.retry_after.is_kept()).count();
        format!("{kept}/{}", seen(is_ours).count())
    };
    format!(
        "RESULT exactness slidegate_most={} slidegate_used={} slidegate_async_used={} \
         slidegate_retry_after={} others_most={} others_retry_after={} skipped={}",
        figure(most(true)),
        used(false),
        used(true),
        kept(true),
        figure(most(false)),
        kept(false),
        rows.iter().filter(|row| row.result.is_err()).count(),
    )
}
