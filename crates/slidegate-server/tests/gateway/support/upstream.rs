//! A service behind the gateway that answers as the test says and writes down what it hears.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::wire::{Message, Wire, response};

/// A service behind the gateway. It ends on drop, and with it all its connections.
pub(crate) struct Upstream {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    heard: Mutex<Vec<Message>>,
    connections: Mutex<Vec<TcpStream>>,
    over: AtomicBool,
}

impl Upstream {
    /// Answers every request with `ok`.
    pub(crate) fn simple() -> Self {
        Self::answering(|_| response("200 OK", "", "ok"))
    }

    /// Answers every request with these bytes, and keeps the connection.
    pub(crate) fn answering<R: AsRef<[u8]>>(
        answer: impl Fn(&Message) -> R + Send + Sync + 'static,
    ) -> Self {
        Self::serving(move |wire, request| wire.try_send(answer(request)))
    }

    /// Does as told with every request; an error ends the connection.
    pub(crate) fn serving(
        serve: impl Fn(&mut Wire, &Message) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::serving_at(SocketAddr::from(([127, 0, 0, 1], 0)), serve)
    }

    /// The same at an address that may have been another's before.
    pub(crate) fn serving_at(
        address: SocketAddr,
        serve: impl Fn(&mut Wire, &Message) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::start(address, move |wire, shared| {
            while let Ok(Some(request)) = wire.request() {
                shared.lock_heard().push(request.clone());
                if serve(wire, &request).is_err() {
                    break;
                }
            }
        })
    }

    /// Leaves each connection to the test.
    pub(crate) fn raw(attend: impl Fn(&mut Wire) + Send + Sync + 'static) -> Self {
        Self::start(SocketAddr::from(([127, 0, 0, 1], 0)), move |wire, _| attend(wire))
    }

    fn start(
        address: SocketAddr,
        attend: impl Fn(&mut Wire, &Shared) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).expect("the port is free");
        let address = listener.local_addr().unwrap();
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
                    // Whoever has a clone keeps it open otherwise.
                    let _ = end.shutdown(Shutdown::Both);
                });
            }
        });
        Self { address, shared }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What it has heard.
    pub(crate) fn heard(&self) -> Vec<Message> {
        self.shared.lock_heard().clone()
    }

    /// The request that it heard last.
    pub(crate) fn last(&self) -> Message {
        self.shared.lock_heard().last().cloned().expect("upstream has heard something")
    }

    /// How many connections it has had.
    pub(crate) fn connections(&self) -> usize {
        self.shared.lock_connections().len()
    }

    /// Closes all connections that there are.
    pub(crate) fn hang_up(&self) {
        for connection in self.shared.lock_connections().iter() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    fn lock_heard(&self) -> MutexGuard<'_, Vec<Message>> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
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
