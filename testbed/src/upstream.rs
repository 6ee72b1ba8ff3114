//! A service behind a gateway that answers as the test says and records what it receives.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::http1::{Message, Wire, response};

/// A service on a free port of loopback. It ends on drop, and with it all its connections.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    received: Mutex<Vec<Message>>,
    connections: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
}

impl Upstream {
    /// Answers every request with `ok`.
    #[must_use]
    pub fn simple() -> Self {
        Self::answering(|_| response("200 OK", "", "ok"))
    }

    /// Answers every request with these bytes, and keeps the connection.
    #[must_use]
    pub fn answering<R: AsRef<[u8]>>(
        answer: impl Fn(&Message) -> R + Send + Sync + 'static,
    ) -> Self {
        Self::serving(move |wire, request| wire.try_send(answer(request)))
    }

    /// Calls this with every request; an error ends the connection.
    #[must_use]
    pub fn serving(
        serve: impl Fn(&mut Wire, &Message) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::serving_at(SocketAddr::from(([127, 0, 0, 1], 0)), serve)
    }

    /// The same at a given address.
    #[must_use]
    pub fn serving_at(
        address: SocketAddr,
        serve: impl Fn(&mut Wire, &Message) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start(address, move |wire, shared| {
            while let Ok(Some(request)) = wire.request() {
                shared.lock_received().push(request.clone());
                if serve(wire, &request).is_err() {
                    break;
                }
            }
        })
    }

    /// Calls this with every connection, and records nothing.
    #[must_use]
    pub fn raw(attend: impl Fn(&mut Wire) + Send + Sync + 'static) -> Self {
        Self::start(SocketAddr::from(([127, 0, 0, 1], 0)), move |wire, _| attend(wire))
    }

    fn start(
        address: SocketAddr,
        attend: impl Fn(&mut Wire, &Shared) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("the port is free");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let (attend, of_thread) = (Arc::new(attend), shared.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                of_thread.lock_connections().push(stream.try_clone().expect("a file handle"));
                let (attend, shared) = (attend.clone(), of_thread.clone());
                thread::spawn(move || {
                    let end = stream.try_clone().expect("a file handle");
                    attend(&mut Wire::over(stream), &shared);
                    // The clone in the list of connections would keep it open.
                    let _ = end.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, shared }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that it has received.
    #[must_use]
    pub fn received(&self) -> Vec<Message> {
        self.shared.lock_received().clone()
    }

    /// The last request that it has received.
    #[must_use]
    pub fn last(&self) -> Message {
        self.shared.lock_received().last().cloned().expect("upstream has received a request")
    }

    /// How many connections it has had.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.lock_connections().len()
    }

    /// Closes all open connections.
    pub fn hang_up(&self) {
        for connection in self.shared.lock_connections().iter() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock_received(&self) -> MutexGuard<'_, Vec<Message>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_connections(&self) -> MutexGuard<'_, Vec<TcpStream>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the thread that waits for the next, so that it drops the listener.
        let _ = TcpStream::connect(self.address);
        self.hang_up();
    }
}
