//! Any bytes of a Redis client.

use redis_protocol::{resp2, resp3};

use super::resp;
use crate::resp::Session;
use crate::resp::command::{Arguments, MAX_BYTES, first};
use crate::resp::reply::Replies;

/// At how many places a command is torn apart.
const MAX_SPLITS: usize = 200;

#[test]
fn commands() {
    slidegate_fuzz::check("resp", |input| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let resp = resp(None);
        let mut session = Session {
            resp: &resp,
            peer: None,
            is_authenticated: true,
            has_ended: false,
            replies: Replies::default(),
        };
        let mut rest = input;
        while !session.has_ended {
            check_torn(rest);
            let Ok(Some((arguments, length))) = first(rest) else { break };
            assert!((1..=MAX_BYTES).contains(&length), "{length} bytes");
            runtime.block_on(session.answer(&arguments));
            check_reply(&session.replies, &arguments);
            session.replies.bytes.clear();
            rest = &rest[length..];
        }
    });
}

/// A command is the same in whatever pieces it comes, and what is kept of one is bounded.
fn check_torn(read: &[u8]) {
    let whole = first(read);
    let length = match &whole {
        Ok(Some((_, length))) => *length,
        Ok(None) => {
            assert!(read.len() < MAX_BYTES, "{} bytes are kept", read.len());
            read.len() + 1
        }
        Err(_) => read.len(),
    };
    for split in 0..length.min(MAX_SPLITS).min(read.len()) {
        match (first(&read[..split]), &whole) {
            (Ok(None), _) => {}
            (Err(early), Err(late)) => assert_eq!(early, *late, "torn at {split}"),
            (early, _) => panic!("torn at {split}: {early:?} instead of {whole:?}"),
        }
    }
    if let Ok(Some((arguments, length))) = &whole {
        assert_eq!(first(&read[..*length]), Ok(Some((arguments.clone(), *length))));
    }
}

/// One command has one reply, which is about as long as the command at most.
fn check_reply(replies: &Replies, arguments: &Arguments<'_>) {
    let reply = &replies.bytes[..];
    if arguments.is_empty() {
        return assert_eq!(reply, b"", "a command of nothing has no reply");
    }
    let decoded = if replies.is_resp3 {
        resp3::decode::complete::decode(reply).map(|frame| frame.map(|(_, length)| length)).ok()
    } else {
        resp2::decode::decode_range(reply).map(|frame| frame.map(|(_, length)| length)).ok()
    };
    let length = decoded.flatten();
    assert_eq!(length, Some(reply.len()), "{} to {arguments:?}", reply.escape_ascii());
    let sent: usize = arguments.iter().map(|argument| argument.len()).sum();
    assert!(reply.len() <= sent + 4096, "{} bytes in reply to {sent}", reply.len());
}
