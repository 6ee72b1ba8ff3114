//! Taking connections from the kernel, whatever happens.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::bind::{SocketFile, Sockets};
use super::connection::Arrival;
use super::counts::ConnectionCounts;

/// After an error such as "too many open files", which only time can cure.
const PAUSE: Duration = Duration::from_millis(50);

/// Between complaints in the log.
const QUIET: Duration = Duration::from_secs(10);

/// Takes connections, one at a time, as long as there is room for them.
#[derive(Debug)]
pub(super) struct Acceptor {
    tcp: Vec<TcpListener>,
    unix: Vec<(UnixListener, Arc<SocketFile>)>,
    room: Arc<Semaphore>,
    counts: Arc<ConnectionCounts>,
    /// Taken, but there was no room yet.
    waiting: Option<Arrival>,
    paused_until: Option<Instant>,
    quiet_until: Option<Instant>,
}

impl Acceptor {
    pub(super) fn new(
        sockets: Sockets,
        room: &Arc<Semaphore>,
        counts: &Arc<ConnectionCounts>,
    ) -> io::Result<Self> {
        let tcp = sockets.tcp.into_iter().map(TcpListener::from_std);
        let unix = sockets.unix.into_iter();
        let unix = unix.map(|(socket, file)| Ok((UnixListener::from_std(socket)?, file)));
        Ok(Self {
            tcp: tcp.collect::<io::Result<_>>()?,
            unix: unix.collect::<io::Result<_>>()?,
            room: Arc::clone(room),
            counts: Arc::clone(counts),
            waiting: None,
            paused_until: None,
            quiet_until: None,
        })
    }

    /// The next connection, with its room. Nothing is lost if this is dropped halfway.
    pub(super) async fn next(&mut self) -> (Arrival, OwnedSemaphorePermit) {
        loop {
            if self.waiting.is_some() {
                let permit = Arc::clone(&self.room).acquire_owned().await;
                let permit = permit.expect("nobody closes the room");
                if let Some(arrival) = self.waiting.take() {
                    return (arrival, permit);
                }
            }
            let arrival = self.accept().await;
            if let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() {
                return (arrival, permit);
            }
            self.counts.had_to_wait();
            self.waiting = Some(arrival);
        }
    }

    /// Takes no more, except for the connections that have already come and find room.
    pub(super) fn close(self) -> Vec<(Arrival, OwnedSemaphorePermit)> {
        let Self { tcp, unix, room, waiting, .. } = self;
        // The kernel is asked, and not the runtime, which may not have heard of them yet.
        let tcp: Vec<_> = tcp.into_iter().filter_map(|socket| socket.into_std().ok()).collect();
        let unix: Vec<_> =
            unix.into_iter().filter_map(|(socket, _)| socket.into_std().ok()).collect();
        let tcp = tcp.iter().flat_map(|socket| socket.incoming().map_while(accepted_tcp));
        let unix = unix.iter().flat_map(|socket| socket.incoming().map_while(accepted_unix));
        let queued = waiting.into_iter().chain(tcp).chain(unix);
        queued
            .map_while(|arrival| Some((arrival, Arc::clone(&room).try_acquire_owned().ok()?)))
            .collect()
    }

    async fn accept(&mut self) -> Arrival {
        loop {
            if let Some(paused_until) = self.paused_until {
                sleep_until(paused_until).await;
                self.paused_until = None;
            }
            match poll_fn(|cx| self.poll_accept(cx)).await {
                Ok(arrival) => return arrival,
                // The client has left again.
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => self.pause(&error),
            }
        }
    }

    fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<Arrival>> {
        for listener in &self.tcp {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                return Poll::Ready(accepted.map(|(stream, peer)| Arrival::tcp(stream, peer)));
            }
        }
        for (listener, _) in &self.unix {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                return Poll::Ready(accepted.map(|(stream, _)| Arrival::unix(stream)));
            }
        }
        Poll::Pending
    }

    fn pause(&mut self, error: &io::Error) {
        let now = Instant::now();
        self.paused_until = Some(now + PAUSE);
        if self.quiet_until.is_none_or(|quiet_until| quiet_until <= now) {
            self.quiet_until = Some(now + QUIET);
            tracing::warn!(%error, "accept failed; retrying");
        }
    }
}

fn accepted_tcp(stream: io::Result<std::net::TcpStream>) -> Option<Arrival> {
    let stream = stream.ok()?;
    stream.set_nonblocking(true).ok()?;
    let peer = stream.peer_addr().ok()?;
    Some(Arrival::tcp(TcpStream::from_std(stream).ok()?, peer))
}

fn accepted_unix(stream: io::Result<std::os::unix::net::UnixStream>) -> Option<Arrival> {
    let stream = stream.ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(Arrival::unix(UnixStream::from_std(stream).ok()?))
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
