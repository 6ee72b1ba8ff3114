//! A blocking connection to a server, for the test's own commands.

use std::io::{self, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::reply::Reply;

/// A server that takes longer is stuck or paused.
const REPLY_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
}

impl Connection {
    pub(crate) fn open(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(REPLY_TIMEOUT))?;
        stream.set_write_timeout(Some(REPLY_TIMEOUT))?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn command(&mut self, arguments: &[&str]) -> io::Result<Reply> {
        let mut request = format!("*{}\r\n", arguments.len());
        for argument in arguments {
            request.push_str(&format!("${}\r\n{argument}\r\n", argument.len()));
        }
        self.stream.get_mut().write_all(request.as_bytes())?;
        Reply::read(&mut self.stream)
    }
}
