//! The time of day as responses have it.

use std::cell::RefCell;
use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use slidegate::Timestamp;

/// Such as `Sun, 06 Nov 1994 08:49:37 GMT`.
const LENGTH: usize = 29;

thread_local! {
    /// The second that was last written, and how.
    static LAST: RefCell<(u64, [u8; LENGTH])> = const { RefCell::new((u64::MAX, [b' '; LENGTH])) };
}

/// Writes an instant. All but the first of a second are copies.
pub(super) fn write(now: Timestamp, bytes: &mut Vec<u8>) {
    let second = now.as_millis() / 1000;
    LAST.with_borrow_mut(|(last, text)| {
        if *last != second {
            let date = httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs(second));
            write!(&mut text[..], "{date}").expect("it has this length");
            *last = second;
        }
        bytes.extend_from_slice(text);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_is_written_as_http_has_it() {
        let written = |ms| {
            let mut bytes = Vec::new();
            write(Timestamp::from_millis(ms), &mut bytes);
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(written(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(written(784_111_777_000), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(written(784_111_777_999), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(written(784_111_778_000), "Sun, 06 Nov 1994 08:49:38 GMT");
    }
}
