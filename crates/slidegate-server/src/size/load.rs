//! How requests are spread over accounts.

/// Requests, and whose they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) requests_per_second: f64,
    pub(super) accounts: u64,
    /// How fast popularity falls with the rank of an account.
    pub(super) skew: f64,
}

/// Accounts of about the same rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accounts {
    pub(super) count: f64,
    /// Of each.
    pub(super) requests_per_second: f64,
}

/// The ranks of one group differ by up to this factor.
const GROUP: f64 = 1.05;

impl Load {
    /// All accounts, the busiest first.
    pub(super) fn groups(&self) -> Vec<Accounts> {
        let mut groups = Vec::new();
        let (mut first, end) = (1.0, self.accounts as f64 + 1.0);
        while first < end {
            let next = (first * GROUP).floor().max(first + 1.0).min(end);
            let weight = self.weight(first - 0.5, next - 0.5);
            groups.push(Accounts { count: next - first, requests_per_second: weight });
            first = next;
        }
        let all: f64 = groups.iter().map(|group| group.requests_per_second).sum();
        for group in &mut groups {
            group.requests_per_second *= self.requests_per_second / all / group.count;
        }
        groups
    }

    /// The popularity of the ranks from one to the other.
    fn weight(&self, from: f64, to: f64) -> f64 {
        let exponent = 1.0 - self.skew;
        if exponent.abs() < 1e-9 {
            (to / from).ln()
        } else {
            (to.powf(exponent) - from.powf(exponent)) / exponent
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the sum over all ranks.
    #[test]
    fn groups_have_what_their_ranks_have() {
        for skew in [0.0, 0.5, 1.0, 1.4] {
            let load = Load { requests_per_second: 1000.0, accounts: 100_000, skew };
            let groups = load.groups();
            assert_eq!(groups.iter().map(|group| group.count).sum::<f64>(), 100_000.0);
            let sum: f64 = (1..=100_000).map(|rank| f64::from(rank).powf(-skew)).sum();
            let busiest = 1000.0 / sum;
            let close = (groups[0].requests_per_second / busiest - 1.0).abs();
            assert!(close < 0.12, "skew {skew}: {} and {busiest}", groups[0].requests_per_second);
            let of_all: f64 = groups.iter().map(|it| it.count * it.requests_per_second).sum();
            assert!((of_all - 1000.0).abs() < 1e-6, "{of_all}");
        }
    }
}
