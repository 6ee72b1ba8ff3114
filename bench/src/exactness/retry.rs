//! Whether a client that waits for as long as a refusal says is then admitted.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::client::{Answer, Connection};
use super::traffic::{LIMIT, QUIET};

/// What was seen of Retry-After.
pub enum RetryAfter {
    /// Refusals do not say.
    Absent,
    /// One request after the other, it did not refuse often enough to be asked.
    NeverRefused,
    /// Of each trial, what was said and whether the client was admitted then.
    Tried(Vec<(Duration, bool)>),
}

/// More than half a window, so that what is left of it is less than a second.
const BETWEEN: Duration = Duration::from_millis(1_100);
const HALF: usize = LIMIT.units / 2;
const REFUSALS: usize = 40;
/// A limiter that admits this many in a row does not refuse.
const MAX_REQUESTS: usize = 10 * LIMIT.units;

/// Two trials: a client that sends until it is refused; and one that sends half of its quota, the
/// rest more than half a window later, and is refused 40 times before it waits.
pub async fn observe(connections: &[Connection]) -> anyhow::Result<RetryAfter> {
    let mut turn = connections.iter().cycle();
    let mut ask = async || {
        let connection = turn.next().expect("a cycle has no end");
        connection.ask().await
    };
    let mut tried = Vec::new();
    for (first, refusals) in [(0, 1), (HALF, REFUSALS)] {
        sleep(QUIET).await;
        for _ in 0..first {
            ask().await?;
        }
        if first > 0 {
            sleep(BETWEEN).await;
        }
        let (mut asked, mut refused): (usize, Vec<Answer>) = (0, Vec::new());
        while refused.len() < refusals && asked < MAX_REQUESTS {
            let answer = ask().await?;
            asked += 1;
            refused.extend((!answer.call.is_admitted).then_some(answer));
        }
        if refused.len() < refusals {
            return Ok(RetryAfter::NeverRefused);
        }
        let Some(Answer { call, retry_after: Some(wait) }) = refused.pop() else {
            return Ok(RetryAfter::Absent);
        };
        sleep_until(Instant::from_std(call.answered + wait)).await;
        tried.push((wait, ask().await?.call.is_admitted));
    }
    Ok(RetryAfter::Tried(tried))
}

impl RetryAfter {
    pub fn is_kept(&self) -> bool {
        matches!(self, Self::Tried(tried) if tried.iter().all(|(_, is_admitted)| *is_admitted))
    }
}

impl fmt::Display for RetryAfter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tried = match self {
            Self::Absent => return f.write_str("none"),
            Self::NeverRefused => return f.write_str("not refused"),
            Self::Tried(tried) => tried,
        };
        let waits = tried.iter().map(|(wait, is_admitted)| {
            let seconds = (wait.as_secs_f64() * 100.0).round() / 100.0;
            format!("{seconds} s{}", if *is_admitted { "" } else { " refused" })
        });
        let word = if self.is_kept() { "yes" } else { "no" };
        write!(f, "{word} ({})", waits.collect::<Vec<_>>().join(", "))
    }
}
