//! The middle of the figures of several rounds, and how far apart they are.

/// Some figures in order: the least, the quartiles and the most.
#[derive(Debug, Clone, Copy)]
pub struct Spread {
    pub least: f64,
    pub low: f64,
    pub middle: f64,
    pub high: f64,
    pub most: f64,
}

impl Spread {
    /// Panics if there are none.
    pub fn of(figures: impl IntoIterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = figures.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| sorted[(sorted.len() - 1) * quarter / 4];
        Self { least: at(0), low: at(1), middle: at(2), high: at(3), most: at(4) }
    }
}
