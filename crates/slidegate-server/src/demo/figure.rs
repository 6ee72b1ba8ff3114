//! How numbers are written.

use std::time::Duration;

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

/// As long as an answer takes: `0.8 ms`.
pub(super) fn short_time(time: Duration) -> String {
    let ms = time.as_secs_f64() * 1000.0;
    match ms {
        ..10.0 => format!("{ms:.1} ms"),
        ..1000.0 => format!("{ms:.0} ms"),
        _ => format!("{:.1} s", ms / 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        let texts = [0, 999, 1000, 50_000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "50,000", "1,234,567"]);
    }

    #[test]
    fn times_have_as_many_digits_as_one_reads() {
        let texts = [840, 9_000, 12_600, 1_250_000].map(|us| short_time(Duration::from_micros(us)));
        assert_eq!(texts, ["0.8 ms", "9.0 ms", "13 ms", "1.2 s"]);
    }
}
