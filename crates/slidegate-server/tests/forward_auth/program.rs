//! Programs that run while a test does.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio, id};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use slidegate_testbed::wait_until;

/// A program that listens somewhere, and ends with this.
pub(crate) struct Program(Child);

impl Program {
    /// Starts a program and waits until it listens. If it is not there, the panic says how to get it.
    pub(crate) fn start(command: &mut Command, install: &str, listens: SocketAddr) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap_or_else(|error| missing(command, install, &error));
        let name = command.get_program().to_owned();
        wait_until(&format!("{name:?} to listen on {listens}"), || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("{name:?} ended with {status}");
            }
            TcpStream::connect(listens).is_ok()
        });
        Self(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a program to its end.
pub(crate) fn run(command: &mut Command, install: &str) -> Output {
    command.output().unwrap_or_else(|error| missing(command, install, &error))
}

fn missing<T>(command: &Command, install: &str, error: &std::io::Error) -> T {
    match error.kind() {
        ErrorKind::NotFound => {
            panic!("{:?} is missing; install it: {install}", command.get_program());
        }
        _ => panic!("{:?} cannot be started: {error}", command.get_program()),
    }
}

/// Sends a request whose target no client library would send, and returns the whole response.
pub(crate) fn send_raw(address: SocketAddr, method: &str, target: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = Vec::new();
    // A server may end a connection with a reset after its response.
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

/// An address on loopback that nobody listens on.
pub(crate) fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

/// A directory that goes away with this.
pub(crate) struct Directory(PathBuf);

impl Directory {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("slidegate-proxies-{}-{number}", id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
