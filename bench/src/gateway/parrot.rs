//! A server that does nothing but answer, to see how many answers there can be.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

const LISTENER: Token = Token(0);

/// Repeats our refusal to whoever says anything, until it is ended.
pub fn run(port: u16) -> anyhow::Result<()> {
    let refusal = include_str!("refusal.http").replace('\n', "\r\n");
    let refusal = refusal.trim_end().as_bytes();
    let (mut poll, mut events) = (Poll::new()?, Events::with_capacity(1024));
    let mut listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut clients = HashMap::new();
    let mut next = 1;
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut client, _)) = listener.accept() {
                    client.set_nodelay(true)?;
                    poll.registry().register(&mut client, Token(next), Interest::READABLE)?;
                    clients.insert(Token(next), client);
                    next += 1;
                }
            } else if clients.get_mut(&event.token()).is_some_and(|client| !answer(client, refusal))
            {
                clients.remove(&event.token());
            }
        }
    }
}

/// Tells whether the client is still there. It has one request at a time, which one read gets.
fn answer(client: &mut TcpStream, refusal: &[u8]) -> bool {
    match client.read(&mut [0; 4096]) {
        Ok(0) => false,
        Ok(_) => client.write_all(refusal).is_ok(),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
