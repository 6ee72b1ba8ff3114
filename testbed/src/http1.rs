//! HTTP/1.1 connections whose bytes the test reads and writes itself.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Longer than any response takes on a slow and busy machine.
pub const IO_TIMEOUT: Duration = Duration::from_secs(20);

/// One end of a connection. Reads fail after [`IO_TIMEOUT`].
#[derive(Debug)]
pub struct Wire {
    stream: Stream,
    unread: Vec<u8>,
}

#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A request or a response.
#[derive(Debug, Clone, Default)]
pub struct Message {
    /// Everything up to the empty line, which is part of it.
    pub head: String,
    /// The body without its framing.
    pub body: Vec<u8>,
    /// The lines after the last chunk, without the empty one.
    pub trailers: String,
}

impl Wire {
    /// Connects, or panics.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        Self::try_connect(address).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Connects.
    ///
    /// # Errors
    /// If nothing listens there.
    pub fn try_connect(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect(address).map(Self::over)
    }

    /// Connects to a Unix socket.
    #[must_use]
    pub fn connect_unix(path: &Path) -> Self {
        let stream =
            UnixStream::connect(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        stream.set_read_timeout(Some(IO_TIMEOUT)).expect("a timeout above zero");
        Self { stream: Stream::Unix(stream), unread: Vec::new() }
    }

    /// Takes over a connection.
    #[must_use]
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(IO_TIMEOUT)).expect("a timeout above zero");
        stream.set_write_timeout(Some(IO_TIMEOUT)).expect("a timeout above zero");
        Self { stream: Stream::Tcp(stream), unread: Vec::new() }
    }

    /// Sends bytes, or panics.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.try_send(bytes).expect("the other end reads");
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// If the other end has closed the connection, or reads nothing for [`IO_TIMEOUT`].
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        match &mut self.stream {
            Stream::Tcp(stream) => stream.write_all(bytes.as_ref()),
            Stream::Unix(stream) => stream.write_all(bytes.as_ref()),
        }
    }

    /// Closes the sending half.
    pub fn finish(&self) {
        let _ = match &self.stream {
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Sends a request without a body and returns the response to it.
    pub fn get(&mut self, path: &str, headers: &str) -> Message {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n{headers}\r\n"));
        self.response()
    }

    /// Reads the next response to a `GET`, with the body that its head announces.
    pub fn response(&mut self) -> Message {
        self.response_to("GET").expect("a response")
    }

    /// Reads the next response to a request of this method.
    ///
    /// # Errors
    /// If the connection ends before the response does, or its framing is wrong.
    pub fn response_to(&mut self, method: &str) -> io::Result<Message> {
        let mut message = Message { head: self.head()?, ..Message::default() };
        let bodiless = method == "HEAD" || [100, 101, 103, 204, 304].contains(&message.status());
        if !bodiless && !self.framed_body(&mut message)? {
            message.body = self.rest()?;
        }
        Ok(message)
    }

    /// Reads the next request; none at the end of the connection.
    ///
    /// # Errors
    /// If the connection ends within a request, or its framing is wrong.
    pub fn request(&mut self) -> io::Result<Option<Message>> {
        if self.unread.is_empty() && self.fill()? == 0 {
            return Ok(None);
        }
        let mut message = Message { head: self.head()?, ..Message::default() };
        self.framed_body(&mut message)?;
        Ok(Some(message))
    }

    /// Reads a head with its empty line.
    ///
    /// # Errors
    /// If the connection ends before, or the head is not UTF-8.
    pub fn head(&mut self) -> io::Result<String> {
        let head = self.until(b"\r\n\r\n")?;
        String::from_utf8(head).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }

    /// Reads everything up to the end of the connection.
    ///
    /// # Errors
    /// If the connection is reset, or silent for [`IO_TIMEOUT`].
    pub fn rest(&mut self) -> io::Result<Vec<u8>> {
        while self.fill()? > 0 {}
        Ok(std::mem::take(&mut self.unread))
    }

    /// Reads everything until the other end closes the connection or is silent for this long.
    pub fn all_for(&mut self, silence: Duration) -> Vec<u8> {
        self.set_read_timeout(silence);
        while self.fill().is_ok_and(|length| length > 0) {}
        self.set_read_timeout(IO_TIMEOUT);
        std::mem::take(&mut self.unread)
    }

    /// Reads this number of bytes.
    ///
    /// # Errors
    /// If the connection ends before.
    pub fn exactly(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.unread.len() < length {
            if self.fill()? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(self.unread.drain(..length).collect())
    }

    /// Whether the other end is silent for this long.
    pub fn is_silent_for(&mut self, time: Duration) -> bool {
        if !self.unread.is_empty() {
            return false;
        }
        self.set_read_timeout(time);
        let silent = matches!(self.fill(), Err(error) if is_timeout(&error));
        self.set_read_timeout(IO_TIMEOUT);
        silent
    }

    /// Whether the other end closes or resets the connection within [`IO_TIMEOUT`].
    pub fn is_closed(&mut self) -> bool {
        loop {
            match self.fill() {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return !is_timeout(&error),
            }
        }
    }

    /// Sets how long reads wait, instead of [`IO_TIMEOUT`].
    pub fn set_read_timeout(&self, time: Duration) {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_read_timeout(Some(time)),
            Stream::Unix(stream) => stream.set_read_timeout(Some(time)),
        }
        .expect("a timeout above zero");
    }

    /// Sets how long writes wait, instead of [`IO_TIMEOUT`].
    pub fn set_write_timeout(&self, time: Duration) {
        match &self.stream {
            Stream::Tcp(stream) => stream.set_write_timeout(Some(time)),
            Stream::Unix(stream) => stream.set_write_timeout(Some(time)),
        }
        .expect("a timeout above zero");
    }

    /// Reads the body that the head announces; false if it announces none.
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
    #[must_use]
    pub fn start(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The status of a response.
    #[must_use]
    pub fn status(&self) -> u16 {
        let status = self.start().split(' ').nth(1).and_then(|status| status.parse().ok());
        status.unwrap_or_else(|| panic!("no status: {:?}", self.head))
    }

    /// The target of a request, as it was sent.
    pub fn target(&self) -> &str {
        self.start().split(' ').nth(1).unwrap_or_default()
    }

    /// The values of a header, one for each line.
    pub fn values(&self, name: &str) -> Vec<String> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines
            .filter(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim().to_owned())
            .collect()
    }

    /// The value of a header; panics if there are several lines of it.
    pub fn value(&self, name: &str) -> Option<String> {
        let mut values = self.values(name);
        assert!(values.len() <= 1, "{name} is there more than once: {}", self.head);
        values.pop()
    }

    /// The body as text.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The status, after checking that the body is a problem of RFC 9457 with the same status.
    pub fn problem(&self) -> u16 {
        assert_eq!(self.value("content-type").as_deref(), Some("application/problem+json"));
        let body: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        assert_eq!(body["status"], self.status(), "{body}");
        assert!(body["title"].is_string() && body["type"].is_string(), "{body}");
        self.status()
    }
}

/// A response with a body of known length.
pub fn response(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n{body}")
}

/// A chunk of a body.
pub fn chunk(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}
