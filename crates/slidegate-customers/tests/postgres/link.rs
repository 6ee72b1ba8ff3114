//! The network between a reader and the database.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Relays connections to a server, until it is cut.
pub(crate) struct Link {
    address: SocketAddr,
    /// Both ends of each connection; none while it is cut.
    ends: Arc<Mutex<Option<Vec<TcpStream>>>>,
}

impl Link {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ends = Arc::new(Mutex::new(Some(Vec::new())));
        let open = Arc::clone(&ends);
        thread::spawn(move || {
            for client in listener.incoming() {
                if let Some(open) = &mut *open.lock().unwrap() {
                    let pair = [client.unwrap(), TcpStream::connect(server).unwrap()];
                    for (from, to) in [(0, 1), (1, 0)] {
                        let [mut from, mut to] =
                            [from, to].map(|end: usize| pair[end].try_clone().unwrap());
                        thread::spawn(move || {
                            let _ = io::copy(&mut from, &mut to);
                            let _ = to.shutdown(Shutdown::Both);
                        });
                    }
                    open.extend(pair);
                }
            }
        });
        Self { address, ends }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends all connections, and new ones as they are made.
    pub(crate) fn cut(&self) {
        for end in self.ends.lock().unwrap().take().into_iter().flatten() {
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    pub(crate) fn restore(&self) {
        *self.ends.lock().unwrap() = Some(Vec::new());
    }
}
