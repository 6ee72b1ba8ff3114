//! Which account the next request is for.

/// Accounts whose popularity falls with their rank, as Zipf's law has it.
pub(crate) struct Accounts {
    /// The part of all requests that goes to this account or a more popular one.
    up_to: Vec<f64>,
}

impl Accounts {
    /// An exponent of 0 makes all equally popular.
    pub(crate) fn new(accounts: u32, exponent: f64) -> Self {
        let weights = (1..=accounts).map(|rank| f64::from(rank).powf(-exponent));
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = weights
            .map(|weight| {
                sum += weight;
                sum
            })
            .collect();
        up_to.iter_mut().for_each(|part| *part /= sum);
        Self { up_to }
    }

    /// The rank of the account of the next request, from 0 for the most popular one.
    pub(crate) fn next(&self) -> u32 {
        let at = fastrand::f64();
        let rank = self.up_to.partition_point(|up_to| *up_to <= at);
        rank.min(self.up_to.len() - 1) as u32
    }
}
