//! A server that sends a fixed response to every read: the upper bound of what a gateway could do.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;

use mio::net::TcpListener;
use mio::{Events, Interest, Poll, Token};

/// Clients have the numbers of their sockets, and that is the number of none.
const LISTENER: Token = Token(usize::MAX);

/// Sends our refusal for every request, until it is killed.
pub fn run(port: u16) -> anyhow::Result<()> {
    let refusal = refusal();
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(1024));
    let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut clients = HashMap::new();
    let mut asking = Vec::new();
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut client, _)) = listener.accept() {
                    client.set_nodelay(true)?;
                    let token = Token(client.as_raw_fd() as usize);
                    poll.registry().register(&mut client, token, Interest::READABLE)?;
                    clients.insert(token, client);
                }
            } else if let Some(client) = clients.get_mut(&event.token()) {
                match client.read(&mut [0; 4096]) {
                    // It has one request at a time, and one read gets it.
                    Ok(1..) => asking.push(event.token()),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Ok(0) | Err(_) => drop(clients.remove(&event.token())),
                }
            }
        }
        // All together, as the gateway does.
        for token in asking.drain(..) {
            if clients
                .get_mut(&token)
                .is_some_and(|client| client.write_all(refusal.as_bytes()).is_err())
            {
                clients.remove(&token);
            }
        }
    }
}

fn refusal() -> String {
    include_str!("refusal.http").trim_end().replace('\n', "\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_is_as_long_as_it_says() {
        let refusal = refusal();
        let (head, body) = refusal.split_once("\r\n\r\n").unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        assert_eq!(length.parse(), Ok(body.len()));
    }
}
