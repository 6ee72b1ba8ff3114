//! What one client sends in twelve seconds, over sixteen connections.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::client::Connection;
use super::tally::{Call, Limit};

/// What every limiter is set to.
pub const LIMIT: Limit = Limit { units: 40, window: Duration::from_secs(2) };
pub const CONNECTIONS: usize = 16;
/// Longer than a window: what was sent before has left it.
pub const QUIET: Duration = Duration::from_millis(2_500);
/// Longer than two: a limiter that weighs the window before the present one has forgotten as well.
pub const FORGOTTEN: Duration = Duration::from_millis(4_500);

/// One pass of the pattern takes six windows; a longer run repeats it.
const PATTERN_MS: u64 = 12_000;

/// A part of the pattern.
struct Part {
    from_ms: u64,
    to_ms: u64,
    shape: Shape,
}

enum Shape {
    /// So many requests at once, again and again, dealt out to the connections in turn.
    Each { every_ms: u64, requests: usize },
    /// Every connection again and again, this long after its last answer.
    Hammer { pause_ms: u64 },
}

/// A lone request begins the window of a limiter whose windows begin with a request. The quota that
/// follows comes late in it, and what follows that is in the next one. No interval is a divisor of
/// the window: whether a request comes just before or just after a unit is free must not depend on a
/// millisecond.
const PATTERN: [Part; 6] = [
    Part { from_ms: 0, to_ms: 1, shape: Shape::Each { every_ms: 1, requests: 1 } },
    Part { from_ms: 1_700, to_ms: 1_701, shape: Shape::Each { every_ms: 1, requests: 40 } },
    // A limiter that counts what it refuses would refuse all of a faster pace.
    Part { from_ms: 1_900, to_ms: 3_650, shape: Shape::Each { every_ms: 65, requests: 1 } },
    Part { from_ms: 4_200, to_ms: 4_201, shape: Shape::Each { every_ms: 1, requests: 1 } },
    Part { from_ms: 5_950, to_ms: 8_400, shape: Shape::Hammer { pause_ms: 5 } },
    Part { from_ms: 10_050, to_ms: 12_000, shape: Shape::Each { every_ms: 140, requests: 16 } },
];

/// What one connection has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Task {
    Send { at: Duration },
    Hammer { from: Duration, to: Duration, pause: Duration },
}

/// Sends all of it, and returns every request.
pub async fn send(connections: &[Connection], length: Duration) -> anyhow::Result<Vec<Call>> {
    let mut tasks = JoinSet::new();
    let start = Instant::now();
    for (connection, plan) in connections.iter().zip(plans(connections.len(), length)) {
        let connection = connection.clone();
        tasks.spawn(async move { follow(&connection, &plan, start).await });
    }
    let mut calls = Vec::new();
    while let Some(task) = tasks.join_next().await {
        calls.extend(task??);
    }
    Ok(calls)
}

async fn follow(
    connection: &Connection,
    plan: &[Task],
    start: Instant,
) -> anyhow::Result<Vec<Call>> {
    let mut calls = Vec::new();
    for task in plan {
        match *task {
            Task::Send { at } => {
                sleep_until(start + at).await;
                calls.push(connection.ask().await?.call);
            }
            Task::Hammer { from, to, pause } => {
                sleep_until(start + from).await;
                while start.elapsed() < to {
                    calls.push(connection.ask().await?.call);
                    sleep(pause).await;
                }
            }
        }
    }
    Ok(calls)
}

/// What each of the connections does, in the order of time.
fn plans(connections: usize, length: Duration) -> Vec<Vec<Task>> {
    let mut plans = vec![Vec::new(); connections];
    let mut turn = (0..connections).cycle();
    let ms = Duration::from_millis;
    let passes = (0..length.as_millis() as u64).step_by(PATTERN_MS as usize);
    for (pass_ms, part) in passes.flat_map(|pass| PATTERN.iter().map(move |part| (pass, part))) {
        let (from_ms, to_ms) = (pass_ms + part.from_ms, pass_ms + part.to_ms);
        match part.shape {
            Shape::Each { every_ms, requests } => {
                for at_ms in (from_ms..to_ms).step_by(every_ms as usize) {
                    let whose: Vec<usize> = turn.by_ref().take(requests).collect();
                    whose.into_iter().for_each(|c| plans[c].push(Task::Send { at: ms(at_ms) }));
                }
            }
            Shape::Hammer { pause_ms } => {
                let (from, to, pause) = (ms(from_ms), ms(to_ms).min(length), ms(pause_ms));
                plans.iter_mut().for_each(|plan| plan.push(Task::Hammer { from, to, pause }));
            }
        }
    }
    let is_within = |task: &Task| match task {
        Task::Send { at } => *at < length,
        Task::Hammer { from, .. } => *from < length,
    };
    plans.iter_mut().for_each(|plan| plan.retain(is_within));
    plans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_dealt_out_and_cut_at_the_length() {
        let count = |seconds| {
            let plans = plans(CONNECTIONS, Duration::from_secs(seconds));
            let sends = |plan: &Vec<Task>| {
                plan.iter().filter(|task| matches!(task, Task::Send { .. })).count()
            };
            let lists: Vec<usize> = plans.iter().map(sends).collect();
            let (least, most) = (lists.iter().min(), lists.iter().max());
            assert!(most.unwrap() - least.unwrap() <= 1, "{lists:?}");
            lists.iter().sum::<usize>()
        };
        assert_eq!(count(1), 1);
        assert_eq!(count(2), 1 + 40 + 2);
        assert_eq!(count(12), 1 + 40 + 27 + 1 + 14 * 16);
        assert_eq!(count(24), 2 * count(12));
    }
}
