//! Accepts connections and retries after errors.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use slidegate::{Limiter, Quota};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

use super::Settings;
use super::bind::{SocketFile, Sockets};
use super::connection::Socket;
use super::connections::{ConnectionTable, count};

/// Pause after an error such as "too many open files", which persists until descriptors are freed.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Accepts connections one at a time while slots are free.
pub(super) struct Acceptor {
    tcp: Vec<TcpListener>,
    unix: Vec<(UnixListener, Arc<SocketFile>)>,
    connections: Arc<ConnectionTable>,
    uses_reserve: bool,
    /// Accepted, but no slot is free yet.
    waiting: Option<Socket>,
    retry_at: Option<Instant>,
    /// Limits the log lines about failures.
    warnings: Limiter,
}

impl Acceptor {
    pub(super) fn new(sockets: Sockets, settings: &Settings) -> io::Result<Self> {
        let tcp = sockets.tcp.into_iter().map(TcpListener::from_std);
        let unix = sockets.unix.into_iter();
        let unix = unix.map(|(socket, file)| Ok((UnixListener::from_std(socket)?, file)));
        Ok(Self {
            tcp: tcp.collect::<io::Result<_>>()?,
            unix: unix.collect::<io::Result<_>>()?,
            connections: Arc::clone(&settings.connections),
            uses_reserve: settings.uses_reserve,
            waiting: None,
            retry_at: None,
            warnings: Limiter::new(Quota::per_minute(1)).capacity(1),
        })
    }

    /// Returns the next connection with its slot. Cancel safe.
    pub(super) async fn next(&mut self) -> (Socket, OwnedSemaphorePermit) {
        loop {
            if self.waiting.is_some() {
                let permit = self.connections.admit().await;
                if let Some(socket) = self.waiting.take() {
                    return (socket, permit);
                }
            }
            let socket = self.accept().await;
            if let Some(permit) = self.connections.try_admit() {
                return (socket, permit);
            }
            count(&self.connections.counts.waited);
            self.waiting = Some(socket);
        }
    }

    /// Stops accepting. Returns the connections already queued in the kernel, as far as slots are free.
    pub(super) fn close(self) -> Vec<(Socket, OwnedSemaphorePermit)> {
        let Self { tcp, unix, connections, waiting, .. } = self;
        // Asks the kernel directly: the runtime may not have been notified of them yet.
        let tcp: Vec<_> = tcp.into_iter().filter_map(|socket| socket.into_std().ok()).collect();
        let unix: Vec<_> =
            unix.into_iter().filter_map(|(socket, _)| socket.into_std().ok()).collect();
        let tcp = tcp.iter().flat_map(|socket| socket.incoming().map_while(accepted_tcp));
        let unix = unix.iter().flat_map(|socket| socket.incoming().map_while(accepted_unix));
        let queued = waiting.into_iter().chain(tcp).chain(unix);
        queued.map_while(|socket| Some((socket, connections.try_admit()?))).collect()
    }

    async fn accept(&mut self) -> Socket {
        loop {
            if let Some(retry_at) = self.retry_at {
                sleep_until(retry_at).await;
                self.retry_at = None;
            }
            match poll_fn(|cx| self.poll_accept_with_reserve(cx)).await {
                Ok(socket) => return socket,
                // The client has disconnected.
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => self.pause(&error),
            }
        }
    }

    fn poll_accept_with_reserve(&self, cx: &mut Context<'_>) -> Poll<io::Result<Socket>> {
        match self.poll_accept(cx) {
            Poll::Ready(Err(error)) if self.uses_reserve && is_out_of_descriptors(&error) => {
                beyond_soft_limit(|| self.poll_accept(cx))
            }
            polled => polled,
        }
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Socket>> {
        for listener in &self.tcp {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                return Poll::Ready(accepted.map(|(stream, peer)| Socket::tcp(stream, peer)));
            }
        }
        for (listener, _) in &self.unix {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                return Poll::Ready(accepted.map(|(stream, _)| Socket::unix(stream)));
            }
        }
        Poll::Pending
    }

    fn pause(&mut self, error: &io::Error) {
        self.retry_at = Some(Instant::now() + ACCEPT_RETRY_DELAY);
        if self.warnings.check("accept").is_ok() {
            tracing::warn!(%error, "accept failed; retrying");
        }
    }
}

fn accepted_tcp(stream: io::Result<std::net::TcpStream>) -> Option<Socket> {
    let stream = stream.ok()?;
    stream.set_nonblocking(true).ok()?;
    let peer = stream.peer_addr().ok()?;
    Some(Socket::tcp(TcpStream::from_std(stream).ok()?, peer))
}

fn accepted_unix(stream: io::Result<std::os::unix::net::UnixStream>) -> Option<Socket> {
    let stream = stream.ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(Socket::unix(UnixStream::from_std(stream).ok()?))
}

/// Whether this process has reached its soft limit on open files.
fn is_out_of_descriptors(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
}

/// Calls `accept` with the soft limit on open files raised to the hard limit. The limit is raised for
/// microseconds; another thread may use part of the reserve by opening a file meanwhile.
fn beyond_soft_limit<T>(accept: impl FnOnce() -> T) -> T {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if setrlimit(Resource::Nofile, raised).is_err() {
        return accept();
    }
    let accepted = accept();
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!(%error, "cannot restore the soft limit on open files");
    }
    accepted
}

fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}
