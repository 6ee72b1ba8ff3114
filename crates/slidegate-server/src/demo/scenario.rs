//! What each client sends, and when.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use slidegate::limit::SystemClock;
use slidegate::{Clock, Timestamp};
use tokio::task::JoinSet;

use super::client::{BURST, Client, GUESSES, POLITE_PAUSE, SCRIPT_REQUESTS};
use super::log::RequestLog;
use super::sender::RequestSender;

/// What a client has to know to play its part.
#[derive(Debug, Clone)]
pub(super) struct ClientSpec {
    pub(super) client: Client,
    pub(super) gateway: SocketAddr,
    pub(super) clock: Arc<SystemClock>,
    pub(super) begin: Timestamp,
    pub(super) length: Duration,
    pub(super) log: Arc<RequestLog>,
}

/// A run of this length has all of the script; in a shorter one it gets as far as it would have.
const WHOLE_SCRIPT: Duration = Duration::from_secs(30);

/// Connections of the script, each with one request in flight at most.
const SCRIPT_CONNECTIONS: u32 = 16;

/// The blocks of a counter that starts again every ten seconds, the window of the policy `search`.
const BLOCK: Duration = Duration::from_secs(10);

/// How long either half of a burst takes.
const HALF_BURST: Duration = Duration::from_millis(500);

/// How long before the boundary the first half is over, so that a busy machine does not carry it to
/// the other side.
const MARGIN: Duration = Duration::from_millis(100);

const WAVE: Duration = Duration::from_secs(1);

impl ClientSpec {
    /// Plays the part to its end.
    pub(super) async fn play(self) {
        match self.client {
            Client::Polite => self.ask_politely().await,
            Client::Script => self.run_script().await,
            Client::Burster => self.burst().await,
            Client::Guesser => self.guess().await,
        }
    }

    async fn ask_politely(self) {
        let mut sender = self.sender().await;
        loop {
            sender.send(&self.client.call(0)).await;
            if self.clock.now() + POLITE_PAUSE >= self.end() {
                return;
            }
            tokio::time::sleep(POLITE_PAUSE).await;
        }
    }

    /// At a fixed pace, whatever the answers are.
    async fn run_script(self) {
        let pace = self.length.max(WHOLE_SCRIPT) / SCRIPT_REQUESTS;
        let mut connections = JoinSet::new();
        for first in 0..SCRIPT_CONNECTIONS {
            let spec = self.clone();
            connections.spawn(async move {
                let mut sender = spec.sender().await;
                for index in (first..SCRIPT_REQUESTS).step_by(SCRIPT_CONNECTIONS as usize) {
                    let at = spec.begin + pace * index;
                    if at >= spec.end() {
                        break;
                    }
                    spec.wait_until(at).await;
                    sender.send(&spec.client.call(index)).await;
                }
            });
        }
        connections.join_all().await;
    }

    /// A whole quota just before each boundary, and another one just after.
    async fn burst(self) {
        let mut sender = self.sender().await;
        let mut boundary = boundary_after(self.begin + HALF_BURST + MARGIN);
        while boundary + HALF_BURST <= self.end() {
            let earlier =
                Timestamp::from_nanos(boundary.as_nanos() - nanos(HALF_BURST) - nanos(MARGIN));
            self.send_evenly(&mut sender, earlier, HALF_BURST, BURST).await;
            self.send_evenly(&mut sender, boundary, HALF_BURST, BURST).await;
            boundary = boundary + BLOCK;
        }
    }

    async fn guess(self) {
        let mut sender = self.sender().await;
        let mut wave = self.begin;
        while wave < self.end() {
            self.send_evenly(&mut sender, wave, WAVE, GUESSES).await;
            wave = wave + 2 * WAVE;
        }
    }

    async fn send_evenly(
        &self,
        sender: &mut RequestSender,
        start: Timestamp,
        length: Duration,
        requests: u32,
    ) {
        for index in 0..requests {
            self.wait_until(start + length * index / requests).await;
            sender.send(&self.client.call(index)).await;
        }
    }

    /// A connection that is there when it is time to begin.
    async fn sender(&self) -> RequestSender {
        let mut sender = RequestSender::new(self.gateway, self.clock.clone(), self.log.clone());
        sender.connect().await;
        self.wait_until(self.begin).await;
        sender
    }

    fn end(&self) -> Timestamp {
        self.begin + self.length
    }

    async fn wait_until(&self, at: Timestamp) {
        tokio::time::sleep(at.saturating_since(self.clock.now())).await;
    }
}

/// The first boundary of blocks that is not before this.
fn boundary_after(at: Timestamp) -> Timestamp {
    let block = nanos(BLOCK);
    Timestamp::from_nanos(at.as_nanos().div_ceil(block) * block)
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boundaries_are_every_tenth_second_of_the_calendar() {
        for (at, expected) in [(20_000, 20_000), (20_001, 30_000), (29_999, 30_000)] {
            let boundary = boundary_after(Timestamp::from_millis(at));
            assert_eq!(boundary, Timestamp::from_millis(expected), "{at}");
        }
    }
}
