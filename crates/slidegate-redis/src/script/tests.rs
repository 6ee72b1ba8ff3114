//! Any reply of a server to the scripts.

use slidegate::limit::{Charge, Quotas};
use slidegate::{Identity, Name, Quota};

use super::*;

fn quotas(texts: &[&str]) -> Quotas {
    let quotas: Vec<Quota> = texts.iter().map(|text| text.parse().unwrap()).collect();
    Quotas::new(quotas).unwrap()
}

fn request(quotas: &Quotas) -> Request {
    let (policy, identity): (Name, _) = ("api".parse().unwrap(), Identity::user("ann"));
    let keys = quotas.as_slice().iter().map(ToString::to_string).collect();
    Request::new(Mode::Spend, &[Charge::new(&policy, &identity, quotas)], keys)
}

/// A server's reply in RESP, or else the bulk string that the scripts reply with.
fn value(input: &[u8]) -> Value {
    let parsed = redis::parse_redis_value(input).and_then(Value::extract_error);
    parsed.unwrap_or_else(|_| Value::BulkString(input.to_vec()))
}

#[test]
fn reply() {
    let (one, two) = (quotas(&["5/min"]), quotas(&["5/min", "100/day"]));
    slidegate_fuzz::check("reply", |input| {
        let reply = value(input);
        check_answers(&reply, [&one, &two, &one]);
        check_ledgers(&reply, &two);
    });
}

fn bytes_of(reply: &Value) -> &[u8] {
    if let Value::BulkString(bytes) = reply { bytes } else { &[] }
}

/// A receipt says what is in the reply, and only there is a request allowed.
fn check_answers(reply: &Value, requests: [&Quotas; 3]) {
    let (bytes, mut answers) = (bytes_of(reply), AnswerReader::new(reply));
    // Where the answer begins, unless there was an error of any length before it.
    let mut begin = Some(TIME_BYTES);
    for quotas in requests {
        let Ok(receipt) = answers.next(&request(quotas)) else {
            begin = None;
            continue;
        };
        let length = 1 + STANDING_BYTES * quotas.as_slice().len();
        assert!(bytes.len() >= TIME_BYTES + length, "{receipt:?} is not in {reply:?}");
        if let Some(begin) = &mut begin {
            let expected = if receipt.spent { SPENT } else { DENIED };
            assert_eq!(bytes[*begin], expected, "{receipt:?} of {reply:?}");
            *begin += length;
        }
        assert_eq!(receipt.standings.len(), quotas.as_slice().len());
        for (standing, quota) in receipt.standings.iter().zip(quotas.as_slice()) {
            assert_eq!(standing.quota(), *quota);
            assert!(standing.remaining() <= quota.units().get(), "{standing:?}");
        }
    }
}

/// A reading is as [`LedgerReading`] promises.
fn check_ledgers(reply: &Value, quotas: &Quotas) {
    let Ok(reading) = AnswerReader::new(reply).ledgers(quotas.as_slice()) else { return };
    assert_eq!(reading.ledgers.len(), quotas.as_slice().len());
    for LedgerReading { entries, .. } in &reading.ledgers {
        assert!(entries.is_sorted_by(|one, next| one.stamp < next.stamp), "{entries:?}");
    }
}
