//! What a server answers to a command.

use std::io::{self, BufRead};

/// One reply in the form of RESP2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status or a string; bytes that are not UTF-8 are replaced.
    Text(String),
    /// An error, with its code as the first word.
    Error(String),
    /// An integer.
    Integer(i64),
    /// No value.
    Nil,
    /// Several replies.
    Array(Vec<Reply>),
}

impl Reply {
    /// Panics with what came unless it is `OK`.
    pub fn expect_ok(self) {
        assert_eq!(self, Self::Text("OK".to_owned()));
    }

    /// The text, or a panic with what came instead.
    pub fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            other => panic!("expected a text, got {other:?}"),
        }
    }

    /// The integer, or a panic with what came instead.
    pub fn integer(self) -> i64 {
        match self {
            Self::Integer(integer) => integer,
            other => panic!("expected an integer, got {other:?}"),
        }
    }

    /// The elements, or a panic with what came instead.
    pub fn array(self) -> Vec<Self> {
        match self {
            Self::Array(elements) => elements,
            other => panic!("expected an array, got {other:?}"),
        }
    }

    pub(crate) fn read(from: &mut impl BufRead) -> io::Result<Self> {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let line = line.strip_suffix("\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| unexpected(line))?;
        match kind {
            "+" => Ok(Self::Text(rest.to_owned())),
            "-" => Ok(Self::Error(rest.to_owned())),
            ":" => Ok(Self::Integer(number(rest)?)),
            "$" => Self::read_text(number(rest)?, from),
            "*" => Self::read_array(number(rest)?, from),
            _ => Err(unexpected(line)),
        }
    }

    fn read_text(length: i64, from: &mut impl BufRead) -> io::Result<Self> {
        let Ok(length) = usize::try_from(length) else { return Ok(Self::Nil) };
        let mut bytes = vec![0; length + "\r\n".len()];
        from.read_exact(&mut bytes)?;
        Ok(Self::Text(String::from_utf8_lossy(&bytes[..length]).into_owned()))
    }

    fn read_array(length: i64, from: &mut impl BufRead) -> io::Result<Self> {
        let Ok(length) = usize::try_from(length) else { return Ok(Self::Nil) };
        (0..length).map(|_| Self::read(from)).collect::<io::Result<_>>().map(Self::Array)
    }
}

fn number(text: &str) -> io::Result<i64> {
    text.parse().map_err(|_| unexpected(text))
}

fn unexpected(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("not a reply: {text:?}"))
}
