//! What was seen of all servers.

use std::time::Duration;

use super::clients::CLIENTS;
use super::{CONNECTIONS, Runner, Traffic, Turn};
use crate::spread::Spread;

/// A line for each server.
pub struct Table {
    lines: Vec<Line>,
}

struct Line {
    name: &'static str,
    traffic: Traffic,
    /// By round.
    turns: Vec<Turn>,
}

impl Table {
    pub fn new(runners: &[Runner], turns: Vec<Vec<Turn>>) -> Self {
        let lines = runners.iter().zip(turns);
        let line = |(runner, turns): (&Runner, _)| Line {
            name: runner.name,
            traffic: runner.traffic,
            turns,
        };
        Self { lines: lines.map(line).collect() }
    }

    /// How many times as many answers the one gives as the other, in the middle of the rounds.
    pub fn rate_ratio(&self, traffic: Traffic, pair: Pair) -> Option<f64> {
        self.ratio(traffic, pair, |turn| turn.rate)
    }

    /// How many times as long the slowest hundredth of the one takes as that of the other.
    pub fn p99_ratio(&self, traffic: Traffic, pair: Pair) -> Option<f64> {
        self.ratio(traffic, pair, |turn| turn.p99.as_secs_f64())
    }

    /// Answers per second in the middle round.
    pub fn rate(&self, traffic: Traffic, name: &str) -> Option<f64> {
        Some(self.line(traffic, name)?.spread(|turn| turn.rate).middle)
    }

    /// Megabytes of memory at the end.
    pub fn rss_mb(&self, traffic: Traffic, name: &str) -> Option<f64> {
        Some(self.line(traffic, name)?.rss_mb())
    }

    pub fn print(&self) {
        let rounds = self.lines.iter().map(|line| line.turns.len()).max().unwrap_or_default();
        println!(
            "{CLIENTS} clients on {CONNECTIONS} connections, one worker thread each; \
             middle of {rounds} rounds (least to most)"
        );
        for traffic in Traffic::ALL {
            let lines: Vec<_> = self.lines.iter().filter(|line| line.traffic == traffic).collect();
            if !lines.is_empty() {
                println!("\nrequests that are {}", traffic.name());
                println!(
                    "  {:<24}{:>28}{:>8}{:>8}{:>8}{:>7}{:>9}",
                    "", "requests per second", "p50 ms", "p99 ms", "cpu us", "busy", "rss MB"
                );
                lines.iter().for_each(|line| line.print());
            }
        }
    }

    fn ratio(&self, traffic: Traffic, pair: Pair, figure: fn(&Turn) -> f64) -> Option<f64> {
        let figures = |name| Some(self.line(traffic, name)?.turns.iter().map(figure));
        let ratios = figures(pair.ours)?.zip(figures(pair.theirs)?);
        Some(Spread::of(ratios.map(|(ours, theirs)| ours / theirs)).middle)
    }

    fn line(&self, traffic: Traffic, name: &str) -> Option<&Line> {
        self.lines.iter().find(|line| line.traffic == traffic && line.name == name)
    }
}

/// Whose figures are divided by whose.
#[derive(Clone, Copy)]
pub struct Pair {
    pub ours: &'static str,
    pub theirs: &'static str,
}

impl Line {
    fn spread(&self, figure: impl Fn(&Turn) -> f64) -> Spread {
        Spread::of(self.turns.iter().map(figure))
    }

    fn rss_mb(&self) -> f64 {
        self.turns.last().map_or(0, |turn| turn.rss_bytes) as f64 / 1e6
    }

    fn print(&self) {
        let Spread { least, middle, most, .. } = self.spread(|turn| turn.rate);
        let rates = format!("{middle:.0} ({least:.0} to {most:.0})");
        let ms = |figure: fn(&Turn) -> Duration| {
            self.spread(|turn| figure(turn).as_secs_f64() * 1e3).middle
        };
        println!(
            "  {:<24}{rates:>28}{:>8.2}{:>8.2}{:>8.2}{:>5.0} %{:>9.1}",
            self.name,
            ms(|turn| turn.p50),
            ms(|turn| turn.p99),
            ms(|turn| turn.cpu) * 1e3,
            self.spread(|turn| turn.busy * 100.0).middle,
            self.rss_mb(),
        );
    }
}
