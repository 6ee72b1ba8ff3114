//! What the server occupies: memory, file descriptors, threads and connections, over the time.

use std::fmt;
use std::fs;
use std::time::Duration;

use slidegate_testbed::Gateway;

/// What the server occupies at one time.
#[derive(Debug, Clone, Copy)]
pub struct Footprint {
    pub at: Duration,
    pub rss_mb: f64,
    pub fds: f64,
    pub threads: f64,
    pub connections: f64,
}

/// The middle of the first third after the warm-up, and of the last third.
#[derive(Debug, Clone, Copy)]
pub struct Trend {
    pub name: &'static str,
    pub start: f64,
    pub end: f64,
    /// The end above which it has grown.
    bound: f64,
}

impl Footprint {
    pub fn of(server: &Gateway, at: Duration) -> Self {
        let entries = |directory: &str| {
            let path = format!("/proc/{}/{directory}", server.pid());
            fs::read_dir(path).map_or(0, Iterator::count) as f64
        };
        Self {
            at,
            rss_mb: server.rss_kib() as f64 / 1024.0,
            fds: entries("fd"),
            threads: entries("task"),
            connections: server.metric("slidegate_connections", "gateway"),
        }
    }
}

/// Memory may fluctuate by a tenth and 8 MB, because allocators keep pages for later. All else may
/// by a tenth, by as many as a few clients have, and by the threads that read a configuration.
const SHARE: f64 = 0.1;
const MEMORY_MB: f64 = 8.0;
const FEW: f64 = 10.0;
const THREADS: f64 = 4.0;

/// Compares the thirds of a run after a warm-up, in which tables fill: a tenth of the run, and at
/// most two minutes.
pub fn trends(samples: &[Footprint]) -> Vec<Trend> {
    let length = samples.last().map(|last| last.at).unwrap_or_default();
    let warm_up = (length / 10).min(Duration::from_secs(120));
    let warm: Vec<_> = samples.iter().filter(|sample| sample.at >= warm_up).collect();
    let third = (warm.len() / 3).max(1).min(warm.len());
    let trend = |name, slack, of: fn(&Footprint) -> f64| {
        let middle = |part: &[&Footprint]| {
            let mut figures: Vec<f64> = part.iter().map(|sample| of(sample)).collect();
            figures.sort_by(f64::total_cmp);
            figures.get(figures.len() / 2).copied().unwrap_or_default()
        };
        let (start, end) = (middle(&warm[..third]), middle(&warm[warm.len() - third..]));
        Trend { name, start, end, bound: start * (1.0 + SHARE) + slack }
    };
    vec![
        trend("memory, MB", MEMORY_MB, |sample| sample.rss_mb),
        trend("file descriptors", FEW, |sample| sample.fds),
        trend("threads", THREADS, |sample| sample.threads),
        trend("connections", FEW, |sample| sample.connections),
    ]
}

impl fmt::Display for Trend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, start, end, bound } = self;
        write!(f, "{name}: {start:.1} at the start, {end:.1} in the end, at most {bound:.1}")
    }
}

impl Trend {
    /// Whether the value has not grown from the start to the end of the run.
    pub fn is_flat(&self) -> bool {
        self.end <= self.bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An hour of samples with this memory and so many file descriptors by time, from 0 to 1.
    fn hour(rss_mb: fn(f64) -> f64, fds: fn(f64) -> f64) -> Vec<bool> {
        let sample = |second: u64| {
            let time = second as f64 / 3600.0;
            let at = Duration::from_secs(second);
            let (rss_mb, fds) = (rss_mb(time), fds(time));
            Footprint { at, rss_mb, fds, threads: 9.0, connections: 50.0 }
        };
        let samples: Vec<_> = (0..3600).step_by(5).map(sample).collect();
        trends(&samples).iter().map(Trend::is_flat).collect()
    }

    #[test]
    fn growth_is_found_and_a_warm_up_is_none() {
        assert_eq!(hour(|_| 40.0, |_| 90.0), [true; 4]);
        assert_eq!(hour(|time| 40.0 + 40.0 * time, |_| 90.0), [false, true, true, true]);
        assert_eq!(hour(|_| 40.0, |time| 90.0 + 60.0 * time), [true, false, true, true]);
        let fills = |time: f64| if time < 0.02 { 5.0 } else { 60.0 };
        assert_eq!(hour(fills, |_| 90.0), [true; 4]);
        assert_eq!(trends(&[]).len(), 4);
    }
}
