//! A network between a client and a server that fails on demand.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::sync::watch;

use crate::relay::{Conditions, Route, Traffic, serve};
use crate::server::RedisServer;

/// A TCP proxy in front of a server, which forwards everything until a fault is set.
///
/// It runs on a thread of its own, so that it works under any or no runtime. On drop it closes
/// all connections and its port.
#[derive(Debug)]
pub struct FaultyNetwork {
    url: String,
    address: SocketAddr,
    conditions: watch::Sender<Conditions>,
    traffic: Arc<Traffic>,
    thread: Option<JoinHandle<()>>,
}

impl FaultyNetwork {
    /// A network that leads to this server, also after it has been restarted.
    #[must_use]
    pub fn in_front_of(server: &RedisServer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a socket can be made non-blocking");
        let address = listener.local_addr().expect("the listener is bound");
        let traffic = Arc::new(Traffic::default());
        let conditions = watch::Sender::new(Conditions::Pass);
        let route = Route {
            server: (Ipv4Addr::LOCALHOST, server.port()).into(),
            conditions: conditions.subscribe(),
            traffic: Arc::clone(&traffic),
        };
        let thread = Some(thread::spawn(move || serve(listener, &route)));
        Self { url: server.url_through(address.port()), address, conditions, traffic, thread }
    }

    /// The server's URL with this network's port in place of its own.
    #[must_use]
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// Where this network accepts connections.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Passes everything on, as at the start.
    pub fn pass(&self) {
        self.conditions.send_replace(Conditions::Pass);
    }

    /// Holds every chunk back for this long, in both directions.
    pub fn delay(&self, by: Duration) {
        self.conditions.send_replace(Conditions::Delay(by));
    }

    /// Accepts connections but swallows all bytes, also of connections that exist; not even the
    /// end of a connection gets through. A connection that lost bytes is reset afterwards.
    pub fn blackhole(&self) {
        self.conditions.send_replace(Conditions::Blackhole);
    }

    /// Resets connections that exist, and new ones as soon as they are accepted.
    pub fn refuse(&self) {
        self.conditions.send_replace(Conditions::Refuse);
    }

    /// Lets this many more bytes of replies through, on the first connection that gets one from
    /// now on, and then resets that connection.
    pub fn cut_next_reply(&self, after_bytes: usize) {
        *self.traffic.cut_after() = Some(after_bytes);
    }

    /// Connections that were accepted so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.traffic.connections.load(Ordering::SeqCst)
    }

    /// Bytes that were passed on to the server so far.
    #[must_use]
    pub fn bytes_to_server(&self) -> u64 {
        self.traffic.bytes_to_server.load(Ordering::SeqCst)
    }

    /// Bytes that were passed on to clients so far.
    #[must_use]
    pub fn bytes_to_client(&self) -> u64 {
        self.traffic.bytes_to_client.load(Ordering::SeqCst)
    }
}

impl Drop for FaultyNetwork {
    fn drop(&mut self) {
        self.conditions.send_replace(Conditions::Over);
        if let Some(thread) = self.thread.take() {
            // It only panics for want of a runtime, and has then said so.
            let _ = thread.join();
        }
    }
}
