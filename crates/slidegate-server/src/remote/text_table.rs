//! Columns of text, each as wide as what stands in it.

/// Rows of cells, the first of which are the headings.
#[derive(Debug)]
pub(super) struct TextTable(Vec<Vec<String>>);

impl TextTable {
    pub(super) fn with(headings: &[&str]) -> Self {
        Self(vec![headings.iter().map(|heading| (*heading).to_owned()).collect()])
    }

    pub(super) fn push(&mut self, row: Vec<String>) {
        self.0.push(row);
    }

    /// The text, without the columns that have nothing in them.
    pub(super) fn text(&self) -> String {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or_default();
        let cell =
            |row: &'_ Vec<String>, column: usize| row.get(column).cloned().unwrap_or_default();
        let width = |column: usize| {
            let used = self.0[1..].iter().any(|row| !cell(row, column).is_empty());
            let widest = self.0.iter().map(|row| cell(row, column).chars().count()).max();
            if used { widest.unwrap_or_default() } else { 0 }
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let used = widths.iter().enumerate().filter(|(_, width)| **width > 0);
            let cells = used.map(|(column, width)| format!("{:<width$}", cell(row, column)));
            let line = cells.collect::<Vec<_>>().join("  ");
            format!("{}\n", line.trim_end())
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be_and_empty_ones_are_left_out() {
        let mut lines = TextTable::with(&["A", "EMPTY", "LONG", "C"]);
        lines.push(vec!["first".into(), String::new(), "x".into(), "1".into()]);
        lines.push(vec!["\u{fc}".into(), String::new(), "longer".into()]);
        assert_eq!(lines.text(), "A      LONG    C\nfirst  x       1\n\u{fc}      longer\n");
    }
}
