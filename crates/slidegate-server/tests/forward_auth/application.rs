//! The application behind a proxy.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// An application that says `hello` to everybody, and remembers who asked what.
pub(crate) struct Application {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Application {
    pub(crate) fn start() -> Self {
        Self::start_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap())
    }

    pub(crate) fn start_on(listener: TcpListener) -> Self {
        let application = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = application.seen.clone();
        // It ends with the test's process.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let seen = seen.clone();
                thread::spawn(move || serve(&stream.unwrap(), &seen));
            }
        });
        application
    }

    /// The requests that came through, as `METHOD /path`.
    pub(crate) fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn serve(mut stream: &TcpStream, seen: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream);
    let mut request = String::new();
    if !matches!(reader.read_line(&mut request), Ok(1..)) {
        return;
    }
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        if line.trim().is_empty() {
            break;
        }
        // Slidegate's token is not for the application.
        assert!(!line.contains("change-me"), "{line}");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let request = request.rsplit_once(' ').unwrap().0.to_owned();
    seen.lock().unwrap().push(request);
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let _ = stream.write_all(response.as_bytes());
}
