//! Any bytes as the body of a question.

use super::api;
use super::arbitrary::is_answered;

#[test]
fn decide() {
    // It is made once: it takes longer than a question.
    let api = api();
    slidegate_fuzz::check("decide", |input| {
        is_answered(&api, input.to_vec());
        api.observed();
    });
}
