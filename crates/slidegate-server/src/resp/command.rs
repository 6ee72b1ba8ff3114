//! Commands as clients send them: arrays of bulk strings, in RESP2 and RESP3 alike.

use std::ops::RangeInclusive;

use redis_protocol::resp2::decode::decode_range;
use redis_protocol::resp2::types::RangeFrame;
use smallvec::SmallVec;

/// The most bytes of a command: a key of any sensible length many times over.
pub(super) const MAX_BYTES: usize = 64 * 1024;

/// The most arguments of a command, its name among them. No command of ours takes a quarter of it.
const MAX_ARGUMENTS: usize = 64;

/// The longest line that begins an array: a star and digits.
const MAX_LINE_BYTES: usize = 32;

/// A command's name and its arguments.
pub(super) type Arguments<'b> = SmallVec<[&'b [u8]; 8]>;

/// What clients can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RespCommand {
    ClThrottle,
    Throttle,
    Spend,
    Peek,
    Hold,
    Settle,
    Record,
    Reset,
    Ping,
    Echo,
    Auth,
    Hello,
    Client,
    Select,
    Command,
    Info,
    ResetConnection,
    Quit,
}

/// How a command is called.
pub(super) struct CommandUsage {
    pub(super) command: RespCommand,
    pub(super) name: &'static str,
    pub(super) arguments: &'static str,
    /// How many there can be, the name among them.
    pub(super) count: RangeInclusive<usize>,
}

const fn usage(
    command: RespCommand,
    name: &'static str,
    arguments: &'static str,
    count: RangeInclusive<usize>,
) -> CommandUsage {
    CommandUsage { command, name, arguments, count }
}

/// All commands, the most frequent first.
pub(super) const COMMANDS: [CommandUsage; 18] = [
    usage(RespCommand::ClThrottle, "CL.THROTTLE", "key max_burst count period [quantity]", 5..=6),
    usage(RespCommand::Throttle, "THROTTLE", "key max_burst count period [quantity]", 5..=6),
    usage(RespCommand::Spend, "SLIDEGATE.SPEND", "policy identity [COST n] [PLAN p]", 3..=7),
    usage(RespCommand::Peek, "SLIDEGATE.PEEK", "policy identity [COST n] [PLAN p]", 3..=7),
    usage(RespCommand::Hold, "SLIDEGATE.HOLD", "policy identity UNITS n [PLAN p]", 5..=7),
    usage(RespCommand::Settle, "SLIDEGATE.SETTLE", "id units", 3..=3),
    usage(RespCommand::Record, "SLIDEGATE.RECORD", "policy identity units [PLAN p]", 4..=6),
    usage(RespCommand::Reset, "SLIDEGATE.RESET", "policy identity", 3..=3),
    usage(RespCommand::Ping, "PING", "[message]", 1..=2),
    usage(RespCommand::Echo, "ECHO", "message", 2..=2),
    usage(RespCommand::Auth, "AUTH", "[username] token", 2..=3),
    usage(RespCommand::Hello, "HELLO", "[2 | 3 [AUTH username token] [SETNAME name]]", 1..=7),
    usage(RespCommand::Client, "CLIENT", "SETNAME name | SETINFO attribute value | ID", 2..=4),
    usage(RespCommand::Select, "SELECT", "0", 2..=2),
    usage(RespCommand::Command, "COMMAND", "[COUNT | DOCS]", 1..=MAX_ARGUMENTS),
    usage(RespCommand::Info, "INFO", "[section]", 1..=MAX_ARGUMENTS),
    usage(RespCommand::ResetConnection, "RESET", "", 1..=1),
    usage(RespCommand::Quit, "QUIT", "", 1..=1),
];

/// What a client sent is no command. The connection cannot go on: where the next one begins is not
/// known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("Protocol error: expected an array of bulk strings")]
    Form,
    #[error("Protocol error: a command has at most {MAX_ARGUMENTS} arguments")]
    Arguments,
    #[error("Protocol error: a command has at most {MAX_BYTES} bytes")]
    Bytes,
}

impl CommandUsage {
    pub(super) fn find(name: &[u8]) -> Option<&'static Self> {
        COMMANDS.iter().find(|usage| usage.name.as_bytes().eq_ignore_ascii_case(name))
    }
}

/// The first command of what was read, and its length; none if there is more to come.
///
/// The codec has no limit to sizes and none to depth, and reads arrays by recursion. So the array is
/// read here, and the codec gets one bulk string at a time.
pub(super) fn first(read: &[u8]) -> Result<Option<(Arguments<'_>, usize)>, ProtocolError> {
    let incomplete = || if read.len() < MAX_BYTES { Ok(None) } else { Err(ProtocolError::Bytes) };
    let line = match read {
        [] => return Ok(None),
        [b'*', line @ ..] => &line[..line.len().min(MAX_LINE_BYTES)],
        _ => return Err(ProtocolError::Form),
    };
    let Some(end) = memchr::memchr(b'\n', line) else {
        return if line.len() < MAX_LINE_BYTES { Ok(None) } else { Err(ProtocolError::Form) };
    };
    let count = line[..end].strip_suffix(b"\r").and_then(whole_number);
    let count = count.ok_or(ProtocolError::Form)?;
    if count > MAX_ARGUMENTS as u64 {
        return Err(ProtocolError::Arguments);
    }
    let (mut arguments, mut at) = (Arguments::new(), end + 2);
    for _ in 0..count {
        match read.get(at) {
            Some(b'$') => {}
            Some(_) => return Err(ProtocolError::Form),
            None => return incomplete(),
        }
        match decode_range(&read[at..]) {
            Ok(Some((RangeFrame::BulkString((from, to)), length))) => {
                arguments.push(&read[at + from..at + to]);
                at += length;
            }
            Ok(None) => return incomplete(),
            Ok(Some(_)) | Err(_) => return Err(ProtocolError::Form),
        }
        // Also if all of it has come at once: the same command is refused where it comes in pieces.
        if at > MAX_BYTES {
            return Err(ProtocolError::Bytes);
        }
    }
    Ok(Some((arguments, at)))
}

/// Digits alone: no sign, no space.
pub(super) fn whole_number(text: &[u8]) -> Option<u64> {
    let digit = |byte: u8| byte.is_ascii_digit().then(|| u64::from(byte - b'0'));
    let append = |number: u64, byte: &u8| number.checked_mul(10)?.checked_add(digit(*byte)?);
    text.iter().try_fold(0, append).filter(|_| !text.is_empty())
}
