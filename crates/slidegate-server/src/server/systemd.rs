//! What the service manager learns: that the server is ready, reloads or stops, and that it is alive.
//!
//! Nothing is sent unless systemd, or another manager with its protocol, has set `NOTIFY_SOCKET`.

use sd_notify::NotifyState;
use slidegate_proxy::ListenAddress;
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::banner::LocalAddresses;

/// The state of a server that answers requests.
#[derive(Debug)]
pub(super) struct ServiceState {
    /// Where it listens.
    listening: String,
}

impl ServiceState {
    /// Reports that all endpoints are open.
    pub(super) fn ready(endpoints: &LocalAddresses) -> Self {
        let LocalAddresses { gateway, decisions, resp, rls, admin } = endpoints;
        let sections = [
            ("gateway", gateway),
            ("decisions", decisions),
            ("resp", resp),
            ("rls", rls),
            ("admin", admin),
        ];
        let of = |(name, addresses): (&str, &Vec<ListenAddress>)| {
            addresses.iter().map(|address| format!("{name} {address}")).collect::<Vec<_>>()
        };
        let listening = sections.into_iter().flat_map(of).collect::<Vec<_>>().join(", ");
        let state = Self { listening };
        state.running("");
        state
    }

    /// Reports that the configuration is read again.
    pub(super) fn reloading(&self) {
        let reloading =
            [NotifyState::Reloading, NotifyState::Status("Reloading the configuration")];
        // Since version 253, systemd takes the message for one of an earlier reload without the time.
        notify(NotifyState::monotonic_usec_now().ok().into_iter().chain(reloading));
    }

    /// Reports the end of a reload, and what could not be read and stays as it was.
    pub(super) fn reloaded(&self, kept: &[&str]) {
        match kept {
            [] => self.running(""),
            _ => self.running(&format!(
                "; the last reload failed, the previous {} is kept: see the log",
                kept.join(" and the previous ")
            )),
        }
    }

    fn running(&self, note: &str) {
        let status = format!("Serving {}{note}", self.listening);
        notify([NotifyState::Ready, NotifyState::Status(&status)]);
    }
}

/// Reports that the server stops. Requests in flight are finished first.
pub(super) fn stopping() {
    notify([NotifyState::Stopping, NotifyState::Status("Stopping: finishing requests in flight")]);
}

/// Feeds the service manager's watchdog, if it has one, as long as the threads of all these runtimes,
/// and of the current one, make progress: a pass begins at every half of the watchdog's time, and ends
/// with the message once each of them has run a task. Ends when one of them has, which is for good.
pub(super) async fn feed_watchdog(workers: Vec<Handle>) {
    let Some(deadline) = sd_notify::watchdog_enabled() else { return };
    while make_progress(&workers).await {
        notify([NotifyState::Watchdog]);
        sleep(deadline / 2).await;
    }
    tracing::error!("a worker thread has ended; the watchdog is not fed any longer");
}

/// Returns once each runtime has run a task, and false if one of them has ended. A thread that is
/// blocked keeps this waiting.
async fn make_progress(workers: &[Handle]) -> bool {
    for worker in workers {
        if worker.spawn(async {}).await.is_err() {
            return false;
        }
    }
    true
}

fn notify<'s>(states: impl IntoIterator<Item = NotifyState<'s>>) {
    let states: Vec<NotifyState<'_>> = states.into_iter().collect();
    if let Err(error) = sd_notify::notify(&states) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use tokio::runtime::{Builder, Runtime};
    use tokio::time::timeout;

    use super::*;

    fn runtime() -> Runtime {
        Builder::new_current_thread().enable_all().build().unwrap()
    }

    #[test]
    fn a_blocked_worker_is_no_progress() {
        let worker = runtime();
        let handle = worker.handle().clone();
        let (block, blocked) = mpsc::channel::<()>();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            worker.block_on(async {
                let _ = blocked.recv();
                let _ = ended.await;
            });
        });
        runtime().block_on(async {
            let workers = [handle];
            let pass = timeout(Duration::from_millis(50), make_progress(&workers)).await;
            assert!(pass.is_err(), "its thread is blocked");
            block.send(()).unwrap();
            assert!(make_progress(&workers).await, "it runs tasks again");
            end.send(()).unwrap();
            thread.join().unwrap();
            assert!(!make_progress(&workers).await, "it has ended");
        });
    }
}
