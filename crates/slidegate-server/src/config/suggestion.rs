//! Suggestions for misspelled keys and values.

/// The known word nearest to what was written, if it is near enough.
pub(super) fn nearest<'k>(
    written: &str,
    known: impl IntoIterator<Item = &'k str>,
) -> Option<&'k str> {
    let written: Vec<char> = written.chars().take(MAX_LEN).collect();
    let near = |word: &&'k str| distance(&written, word);
    let best = known.into_iter().min_by_key(near)?;
    let slips = if best.len() < 5 { 1 } else { 2 };
    (distance(&written, best) <= slips).then_some(best)
}

/// No key is half as long.
const MAX_LEN: usize = 64;

/// How many letters must be added, removed, changed or swapped with the next to make one the
/// other.
fn distance(a: &[char], b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let change = row[j] + usize::from(a[i] != b[j]);
            let mut least = change.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_seen_and_strangers_are_not() {
        let known = ["quotas", "listen", "tls", "match", "upstream"];
        for (written, meant) in [
            ("qoutas", Some("quotas")),
            ("quota", Some("quotas")),
            ("lissten", Some("listen")),
            ("tsl", Some("tls")),
            ("ssl", None),
            ("banana", None),
            ("", None),
        ] {
            assert_eq!(nearest(written, known), meant, "{written}");
        }
        assert_eq!(nearest("x", []), None);
    }
}
