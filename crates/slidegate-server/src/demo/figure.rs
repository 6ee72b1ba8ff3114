//! How numbers are written.

/// With commas between thousands: `50,000`.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        let texts = [0, 999, 1000, 50_000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "50,000", "1,234,567"]);
    }
}
