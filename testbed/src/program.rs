//! Programs that run while a test does, and requests that no client library would send them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use crate::http1::IO_TIMEOUT;
use crate::process::missing;
use crate::wait::wait_until;

/// A program that listens on a port, killed on drop.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Starts a program and waits until it listens. If it is not installed, the panic says how to.
    #[must_use]
    pub fn start(command: &mut Command, install: &str, listens: SocketAddr) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{}", missing(command, install, &error)));
        let name = command.get_program().to_owned();
        wait_until(&format!("{name:?} to listen on {listens}"), || {
            if let Some(status) = child.try_wait().expect("it is a child of ours") {
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

/// Runs a program to its end, whatever its exit code. If it is not installed, the panic says how to.
pub fn run(command: &mut Command, install: &str) -> Output {
    command.output().unwrap_or_else(|error| panic!("{}", missing(command, install, &error)))
}

/// Sends a request with any target, and returns the whole response.
pub fn send_raw(address: SocketAddr, method: &str, target: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(IO_TIMEOUT)).expect("a timeout above zero");
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n{headers}\r\n"
    );
    stream.write_all(head.as_bytes()).expect("the server reads");
    let mut response = Vec::new();
    // A server may end a connection with a reset after its response.
    let _ = stream.read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

/// An address on loopback with a port that is free now.
#[must_use]
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("it is bound")
}
