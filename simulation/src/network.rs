//! A network between gateways and Redis: it takes time, and sometimes longer.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::SimulatedRedis;

/// How long a message and its answer take, without the time in the server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RoundTripTime {
    /// On average, if nothing is lost.
    pub time: Duration,
    /// A message takes up to this part of its time more or less.
    pub jitter: f64,
    /// Which part of the messages is lost, and sent again when TCP notices.
    pub loss: f64,
}

impl RoundTripTime {
    /// Within a data centre.
    pub const NEAR: Self = Self { time: Duration::from_micros(200), jitter: 0.5, loss: 0.0001 };
    /// Between zones of a region.
    pub const REGION: Self = Self { time: Duration::from_millis(1), jitter: 0.5, loss: 0.0001 };
    /// Between regions.
    pub const FAR: Self = Self { time: Duration::from_millis(80), jitter: 0.2, loss: 0.001 };
}

/// The shortest time after which Linux sends a segment again.
const RETRANSMISSION: Duration = Duration::from_millis(200);
/// More than is ever in flight on a connection here.
const BUFFER_BYTES: usize = 1 << 20;

/// The way of one gateway to Redis.
pub struct Network {
    redis: SimulatedRedis,
    round_trip: RoundTripTime,
    state: Mutex<State>,
    bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Nothing arrives before this.
    stalled_until: Option<Instant>,
    is_cut: bool,
    /// What moves bytes, and the server's side of each connection.
    connections: JoinSet<()>,
}

impl Network {
    /// A network that leads to this server.
    pub fn new(redis: SimulatedRedis, round_trip: RoundTripTime) -> Arc<Self> {
        let (state, bytes) = (Mutex::default(), AtomicU64::new(0));
        Arc::new(Self { redis, round_trip, state, bytes })
    }

    /// The bytes that it has carried both ways.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Opens a connection.
    pub async fn connect(self: Arc<Self>) -> io::Result<DuplexStream> {
        let mut state = self.state.lock();
        if state.is_cut {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, near_end) = duplex(BUFFER_BYTES);
        let (far, far_end) = duplex(BUFFER_BYTES);
        let ((near_read, near_write), (far_read, far_write)) = (split(near_end), split(far_end));
        self.carry(&mut state.connections, near_read, far_write);
        self.carry(&mut state.connections, far_read, near_write);
        let redis = self.redis.clone();
        state.connections.spawn(async move { redis.serve(far).await.unwrap_or_default() });
        Ok(near)
    }

    /// Nothing arrives before this instant, nor before the latest of earlier calls.
    pub fn stall_until(&self, until: Instant) {
        let mut state = self.state.lock();
        state.stalled_until = state.stalled_until.max(Some(until));
    }

    fn delivery(&self, arrival: Instant) -> Instant {
        self.state.lock().stalled_until.map_or(arrival, |until| until.max(arrival))
    }

    /// Ends all connections, without a word to the server, and refuses new ones.
    pub fn cut(&self) {
        let mut state = self.state.lock();
        state.is_cut = true;
        state.connections.abort_all();
    }

    /// Moves bytes one way, in order and each no sooner than it may arrive.
    fn carry(
        self: &Arc<Self>,
        tasks: &mut JoinSet<()>,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
    ) {
        let (sent, mut arriving) = mpsc::unbounded_channel::<(Instant, Bytes)>();
        let network = self.clone();
        tasks.spawn(async move {
            let (mut read, mut last) = (BytesMut::new(), Instant::now());
            while from.read_buf(&mut read).await.is_ok_and(|bytes| bytes > 0) {
                network.bytes.fetch_add(read.len() as u64, Ordering::Relaxed);
                last = last.max(network.arrival());
                if sent.send((last, read.split().freeze())).is_err() {
                    return;
                }
            }
        });
        let network = self.clone();
        tasks.spawn(async move {
            while let Some((at, bytes)) = arriving.recv().await {
                while network.delivery(at) > Instant::now() {
                    sleep_until(network.delivery(at)).await;
                }
                if to.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        });
    }

    fn arrival(&self) -> Instant {
        let RoundTripTime { time, jitter, loss } = self.round_trip;
        let mut takes = time.mul_f64(0.5 * (1.0 + jitter * (2.0 * fastrand::f64() - 1.0)));
        while fastrand::f64() < loss {
            takes += RETRANSMISSION;
        }
        // Timers have whole milliseconds. Chance keeps the average.
        let whole_ms = (takes.as_secs_f64() * 1000.0 + fastrand::f64()).floor();
        Instant::now() + Duration::from_millis(whole_ms as u64)
    }
}
