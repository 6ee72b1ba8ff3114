//! What was seen of all limiters under one load.

use std::time::Duration;

use super::candidates::{Candidate, UNITS};
use super::load::{Turn, latencies};
use crate::spread::Spread;

/// A line for each limiter.
pub struct Table {
    lines: Vec<(Candidate, Line)>,
}

struct Line {
    /// Decisions per second, by round.
    rates: Vec<f64>,
    p50: Duration,
    p99: Duration,
    /// Of each decision.
    server_cpu: Duration,
    client_cpu: Duration,
    /// The part of the time in which the server was at work.
    busy: f64,
    allowed: f64,
    /// How full accounts were, of 1.
    full: f64,
}

impl Table {
    pub fn new(seen: &[Vec<Turn>; 4]) -> Self {
        let lines = Candidate::ALL.into_iter().zip(seen);
        Self { lines: lines.map(|(candidate, turns)| (candidate, Line::new(turns))).collect() }
    }

    /// How many times as many decisions one limiter makes as another, in the same round.
    pub fn ratio(&self, one: Candidate, other: Candidate) -> Spread {
        let rates = |candidate| {
            let line = self.lines.iter().find(|(own, _)| *own == candidate);
            &line.expect("all limiters have a line").1.rates
        };
        let pairs = rates(one).iter().zip(rates(other));
        Spread::of(pairs.map(|(one, other)| one / other))
    }

    pub fn print(&self, title: &str) {
        println!("\n{title}");
        println!(
            "  {:<22}{:>28}{:>8}{:>8}{:>11}{:>11}{:>7}{:>9}{:>7}",
            "",
            "decisions per second",
            "p50 ms",
            "p99 ms",
            "server us",
            "client us",
            "busy",
            "allowed",
            "full"
        );
        for (candidate, line) in &self.lines {
            line.print(*candidate);
        }
        let pairs = [
            (Candidate::Packed, Candidate::Pipeline),
            (Candidate::Packed, Candidate::Script),
            (Candidate::Packed, Candidate::SortedSet),
            (Candidate::SortedSet, Candidate::Script),
        ];
        for (one, other) in pairs {
            let Spread { least, middle, most, .. } = self.ratio(one, other);
            let name = format!("{} / {}", one.name(), other.name());
            println!("  {name:<44}{middle:>5.2} ({least:.2} to {most:.2})");
        }
    }
}

impl Line {
    fn new(turns: &[Turn]) -> Self {
        let total = |figure: fn(&Turn) -> f64| turns.iter().map(figure).sum::<f64>();
        let decided = total(|turn| turn.decided as f64);
        let cpu_s = total(|turn| turn.server_cpu.as_secs_f64());
        let client_cpu_s = total(|turn| turn.client_cpu.as_secs_f64());
        let mut latencies_ns = latencies();
        for turn in turns {
            latencies_ns.add(&turn.latencies_ns).expect("the bounds are the same");
        }
        let latency = |quantile| Duration::from_nanos(latencies_ns.value_at_quantile(quantile));
        Self {
            rates: turns.iter().map(Turn::rate).collect(),
            p50: latency(0.5),
            p99: latency(0.99),
            server_cpu: Duration::from_secs_f64(cpu_s / decided),
            client_cpu: Duration::from_secs_f64(client_cpu_s / decided),
            busy: cpu_s / total(|turn| turn.took.as_secs_f64()),
            allowed: total(|turn| turn.allowed as f64) / decided,
            full: total(|turn| turn.used as f64) / decided / f64::from(UNITS),
        }
    }

    fn print(&self, candidate: Candidate) {
        let Spread { least, middle, most, .. } = Spread::of(self.rates.iter().copied());
        let rates = format!("{middle:.0} ({least:.0} to {most:.0})");
        let ms = |latency: Duration| latency.as_secs_f64() * 1e3;
        let us = |cpu: Duration| cpu.as_secs_f64() * 1e6;
        println!(
            "  {:<22}{rates:>28}{:>8.2}{:>8.2}{:>11.2}{:>11.2}{:>5.0} %{:>7.0} %{:>5.0} %",
            candidate.name(),
            ms(self.p50),
            ms(self.p99),
            us(self.server_cpu),
            us(self.client_cpu),
            self.busy * 100.0,
            self.allowed * 100.0,
            self.full * 100.0,
        );
    }
}
