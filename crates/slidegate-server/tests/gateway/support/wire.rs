//! A connection whose bytes the test sees and writes itself.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::PATIENCE;

/// One end of a connection.
pub(crate) struct Wire {
    stream: Stream,
    unread: Vec<u8>,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A request or a response.
#[derive(Debug, Clone, Default)]
pub(crate) struct Message {
    /// All up to and with the empty line.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// What stood after the last chunk, without the empty line.
    pub(crate) trailers: String,
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    pub(crate) fn try_connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).map(Self::over)
    }

    pub(crate) fn connect_unix(path: &Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self { stream: Stream::Unix(stream), unread: Vec::new() }
    }

    pub(crate) fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Self { stream: Stream::Tcp(stream), unread: Vec::new() }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the other end reads");
    }

    pub(crate) fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes.as_ref()),
            Stream::Unix(stream) => stream.write_all(bytes.as_ref()),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&self) {
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Sends a request without a body and returns the response to it.
    pub(crate) fn get(&mut self, path: &str, headers: &str) -> Message {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n"));
        self.response()
    }

    /// The next response, and its body by its own account.
    pub(crate) fn response(&mut self) -> Message {
        self.response_to("GET").expect("a response")
    }

    pub(crate) fn response_to(&mut self, method: &str) -> io::Result<Message> {
        let mut message = Message { head: self.head()?, ..Message::default() };
        let bodiless = method == "HEAD" || [100, 101, 103, 204, 304].contains(&message.status());
        if !bodiless && !self.framed_body(&mut message)? {
            message.body = self.rest()?;
        }
        Ok(message)
    }

    /// The next request; none at the end.
    pub(crate) fn request(&mut self) -> io::Result<Option<Message>> {
        if self.unread.is_empty() && self.fill()? == 0 {
            return Ok(None);
        }
        let mut message = Message { head: self.head()?, ..Message::default() };
        self.framed_body(&mut message)?;
        Ok(Some(message))
    }

    /// A head with its empty line.
    pub(crate) fn head(&mut self) -> io::Result<String> {
        let head = self.until(b"\r\n\r\n")?;
        String::from_utf8(head).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Everything up to the end of the connection. An error if it does not end well.
    pub(crate) fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.unread))
    }

    /// Everything that comes until the other end closes the connection or is silent for this long.
    pub(crate) fn all_for(&mut self, silence: Duration) -> Vec<u8> {
        self.set_read_timeout(silence);
        while self.fill().is_ok_and(|length| length > 0) {}
        self.set_read_timeout(PATIENCE);
        std::mem::take(&mut self.unread)
    }

    /// So many bytes.
    pub(crate) fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.unread.drain(..length).collect())
    }

    /// Whether the other end is silent for this long.
    pub(crate) fn is_silent_for(&mut self, time: Duration) -> bool {
        if !self.unread.is_empty() {
            return false;
        }
        self.set_read_timeout(time);
        let silent = matches!(self.fill(), Err(error) if is_timeout(&error));
        self.set_read_timeout(PATIENCE);
        silent
    }

    /// Whether the other end closes the connection, be it in an orderly way or not.
    pub(crate) fn is_closed(&mut self) -> bool {
        loop {
            match self.fill() {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !is_timeout(&error),
            }
        }
    }

    pub(crate) fn set_read_timeout(&self, time: Duration) {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
        .unwrap();
    }

    pub(crate) fn set_write_timeout(&self, time: Duration) {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_write_timeout(Some(time)),
            Stream::Unix(stream) => stream.set_write_timeout(Some(time)),
        }
        .unwrap();
    }

    /// Reads the body that the head tells of; false if it does not tell.
    fn framed_body(&mut self, message: &mut Message) -> io::Result<bool> {
        if message.value("transfer-encoding").as_deref() == Some("chunked") {
            loop {
                let size = self.until(b"\r\n")?;
                let size = String::from_utf8_lossy(&size[..size.len() - 2]).into_owned();
                let size = usize::from_str_radix(&size, 16)
                    .map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
                if size == 0 {
                    break;
                }
                let mut data = self.exactly(size + 2)?;
                data.truncate(size);
                message.body.append(&mut data);
            }
            loop {
                let line = self.until(b"\r\n")?;
                if line == b"\r\n" {
                    return Ok(true);
                }
                message.trailers.push_str(&String::from_utf8_lossy(&line));
            }
        }
        let Some(length) = message.value("content-length") else { return Ok(false) };
        let length =
            length.parse().map_err(|error| io::Error::new(ErrorKind::InvalidData, error))?;
        message.body = self.exactly(length)?;
        Ok(true)
    }

    fn until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        let mut from = 0;
        loop {
            let found = self.unread[from..].windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                return Ok(self.unread.drain(..from + at + end.len()).collect());
            }
            from = self.unread.len().saturating_sub(end.len());
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    fn fill(&mut self) -> io::Result<usize> {
        let mut bytes = [0; 64 * 1024];
        let length = match &mut self.stream {
            Stream::Tcp(stream) => stream.read(&mut bytes)?,
            Stream::Unix(stream) => stream.read(&mut bytes)?,
        };
        self.unread.extend_from_slice(&bytes[..length]);
        Ok(length)
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

impl Message {
    /// The request line or the status line.
    pub(crate) fn start(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    pub(crate) fn status(&self) -> u16 {
        let status = self.start().split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status: {:?}", self.head))
    }

    /// The target of a request, as it was sent.
    pub(crate) fn target(&self) -> &str {
        self.start().split(' ').nth(1).unwrap_or_default()
    }

    /// The values of a header, each line's apart.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
            .collect()
    }

    /// The value of a header that there may be once.
    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let mut values = self.values(name);
        assert!(values.len() <= 1, "{name} is there more than once: {}", self.head);
        values.pop()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The status that it is, as a problem of RFC 9457.
    pub(crate) fn problem(&self) -> u16 {
        assert_eq!(self.value("content-type").as_deref(), Some("application/problem+json"));
        let body: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        assert_eq!(body["status"], self.status(), "{body}");
        assert!(body["title"].is_string() && body["type"].is_string(), "{body}");
        self.status()
    }
}

/// A response with a body of known length.
pub(crate) fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

/// A chunk of a body.
pub(crate) fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}
