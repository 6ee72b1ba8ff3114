//! When each fault happens.

use std::time::Duration;

use fastrand::Rng;

use super::rules::VERSIONS;

/// Something that is done to the gateway or to what it depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Another version of the configuration, and `SIGHUP`.
    Reload { version: usize },
    /// A configuration with an error, and `SIGHUP`.
    BadReload,
    /// `SIGKILL`, and a restart with the append-only file.
    KillRedis,
    /// `SIGSTOP`, and `SIGCONT`.
    StopRedis,
    /// All connections closed, and the port as well for a moment.
    KillUpstream,
}

const MINUTE: u64 = 60;
const JITTER: Duration = Duration::from_secs(2);
/// A fault begins only if it can heal before the end.
const MARGIN: Duration = Duration::from_secs(8);

/// The faults of a run, each at the same time of every minute, give or take two seconds.
pub fn schedule(length: Duration, seed: u64) -> Vec<(Duration, Fault)> {
    let mut random = Rng::with_seed(seed);
    let mut version = 0;
    let mut faults = Vec::new();
    for minute in (0..length.as_secs()).step_by(MINUTE as usize) {
        for (second, fault) in [
            (6, None),
            (13, Some(Fault::KillUpstream)),
            (19, Some(Fault::KillRedis)),
            (27, None),
            (33, Some(Fault::BadReload)),
            (39, Some(Fault::StopRedis)),
            (47, None),
            (53, Some(Fault::KillUpstream)),
        ] {
            let fault = fault.unwrap_or_else(|| {
                version = (version + random.usize(1..VERSIONS)) % VERSIONS;
                Fault::Reload { version }
            });
            let at = Duration::from_secs(minute + second) + JITTER.mul_f64(random.f64());
            if at + MARGIN < length {
                faults.push((at, fault));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_every_fault_and_a_seed_means_one_schedule() {
        let minute = schedule(Duration::from_secs(60), 1);
        for fault in [Fault::BadReload, Fault::KillRedis, Fault::StopRedis, Fault::KillUpstream] {
            assert!(minute.iter().any(|(_, found)| *found == fault), "{fault:?}");
        }
        let (mut in_force, mut reloads) = (0, 0);
        for (_, fault) in schedule(Duration::from_secs(600), 2) {
            if let Fault::Reload { version } = fault {
                assert_ne!(version, in_force, "every reload changes the units");
                (in_force, reloads) = (version, reloads + 1);
            }
        }
        assert_eq!(reloads, 30);
        let times = schedule(Duration::from_secs(600), 2);
        assert!(times.is_sorted_by_key(|(at, _)| *at));
        assert_eq!(times, schedule(Duration::from_secs(600), 2));
        assert_ne!(times, schedule(Duration::from_secs(600), 3));
    }
}
