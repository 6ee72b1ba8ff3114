//! The connections of a faulty network, each from a client to the server.

use std::future;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::{runtime, select, time};

/// What is read at once, and delayed as one.
const CHUNK_BYTES: usize = 16 * 1024;

/// What happens to connections, old and new.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Conditions {
    Pass,
    Delay(Duration),
    Blackhole,
    Refuse,
    /// The network itself ends.
    Over,
}

/// What has passed, and what will be kept from passing.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) connections: AtomicU64,
    pub(crate) bytes_to_server: AtomicU64,
    pub(crate) bytes_to_client: AtomicU64,
    cut_after: Mutex<Option<usize>>,
}

/// The way to the server and all that may happen on it.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) server: SocketAddr,
    pub(crate) conditions: watch::Receiver<Conditions>,
    pub(crate) traffic: Arc<Traffic>,
}

/// Relays connections until the conditions are [`Conditions::Over`]. The listener is non-blocking.
pub(crate) fn serve(listener: TcpListener, route: &Route) {
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be built").block_on(async {
        select! {
            () = accept(listener, route) => {}
            () = route.wait_for(|conditions| conditions == Conditions::Over) => {}
        }
    });
}

async fn accept(listener: TcpListener, route: &Route) {
    let listener = tokio::net::TcpListener::from_std(listener).expect("the runtime is running");
    loop {
        let (client, _) = listener.accept().await.expect("the process has a file handle left");
        route.traffic.connections.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(relay(client, route.clone()));
    }
}

async fn relay(mut client: TcpStream, route: Route) {
    // What is written is sent before a reset, which would otherwise discard it.
    let _ = client.set_nodelay(true);
    let end = select! {
        // In this order, so that nothing passes once the network refuses.
        biased;
        () = route.wait_for(|conditions| conditions == Conditions::Refuse) => End::Reset,
        end = route.carry(&mut client) => end,
    };
    if end == End::Reset {
        let _ = client.set_zero_linger();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Close,
    Reset,
}

impl Traffic {
    /// Bytes after which the next reply is cut.
    pub(crate) fn cut_after(&self) -> MutexGuard<'_, Option<usize>> {
        self.cut_after.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Route {
    async fn carry(&self, client: &mut TcpStream) -> End {
        if self.is_blackhole() {
            return self.swallow(client).await;
        }
        let Ok(mut server) = TcpStream::connect(self.server).await else { return End::Reset };
        let _ = server.set_nodelay(true);
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        select! {
            end = self.pass_requests(from_client, to_server) => end,
            end = self.pass_replies(from_server, to_client) => end,
        }
    }

    async fn pass_requests(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> End {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let length = match self.receive(&mut from, &mut chunk).await {
                Ok(length) => length,
                Err(end) => return end,
            };
            self.traffic.bytes_to_server.fetch_add(length as u64, Ordering::SeqCst);
            if to.write_all(&chunk[..length]).await.is_err() {
                return End::Close;
            }
        }
    }

    async fn pass_replies(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
    ) -> End {
        let mut chunk = vec![0; CHUNK_BYTES];
        let mut cut_after = None;
        loop {
            let length = match self.receive(&mut from, &mut chunk).await {
                Ok(length) => length,
                Err(end) => return end,
            };
            cut_after = cut_after.or_else(|| self.traffic.cut_after().take());
            let passed = cut_after.map_or(length, |cut| length.min(cut));
            // Before the bytes themselves, so that who has them sees them counted.
            self.traffic.bytes_to_client.fetch_add(passed as u64, Ordering::SeqCst);
            if to.write_all(&chunk[..passed]).await.is_err() {
                return End::Close;
            }
            cut_after = cut_after.map(|cut| cut - passed);
            if cut_after == Some(0) {
                return End::Reset;
            }
        }
    }

    /// The length of the next chunk, once it is due; or how the connection ends.
    async fn receive(
        &self,
        from: &mut (impl AsyncRead + Unpin),
        chunk: &mut [u8],
    ) -> Result<usize, End> {
        let length = from.read(chunk).await.unwrap_or(0);
        let conditions = *self.conditions.borrow();
        if let Conditions::Delay(delay) = conditions {
            time::sleep(delay).await;
        }
        if self.is_blackhole() {
            return Err(self.swallow(from).await);
        }
        if length == 0 { Err(End::Close) } else { Ok(length) }
    }

    /// Reads and discards until the blackhole is gone. What was lost would put requests and replies
    /// out of step, so the connection cannot go on.
    async fn swallow(&self, from: &mut (impl AsyncRead + Unpin)) -> End {
        let drain = async {
            let mut chunk = vec![0; CHUNK_BYTES];
            while from.read(&mut chunk).await.is_ok_and(|length| length > 0) {}
            future::pending::<()>().await;
        };
        select! {
            () = drain => {}
            () = self.wait_for(|conditions| conditions != Conditions::Blackhole) => {}
        }
        End::Reset
    }

    fn is_blackhole(&self) -> bool {
        *self.conditions.borrow() == Conditions::Blackhole
    }

    async fn wait_for(&self, condition: impl Fn(Conditions) -> bool) {
        // It only fails without a sender, when the network is over as well.
        let _ = self.conditions.clone().wait_for(|conditions| condition(*conditions)).await;
    }
}
