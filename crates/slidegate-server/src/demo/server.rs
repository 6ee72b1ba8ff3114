//! The gateway of the demo: the server of `slidegate serve`, with a built-in configuration.

use std::net::SocketAddr;

use anyhow::Context;
use slidegate::MemoryStore;

use crate::config::{self, File, Flags, ListenAddress, Loaded, Sources};
use crate::overrides::Persistence;
use crate::server::{RunningServer, Server, StopSignals};

/// A gateway whose endpoints are open.
pub(super) struct DemoServer {
    pub(super) server: Server<MemoryStore>,
    pub(super) running: RunningServer,
}

const CONFIGURATION: &str = include_str!("configuration.toml");

impl DemoServer {
    /// Opens a gateway in front of this upstream, on ports that are free.
    pub(super) async fn open(upstream: String) -> anyhow::Result<Self> {
        let sources = sources(upstream);
        let Loaded { config, .. } = config::load(&sources)?;
        let server =
            Server::new(config, sources, MemoryStore::new(), Persistence::beside(None), None)?;
        let running = RunningServer::new(&server).await?;
        Ok(Self { server, running })
    }

    pub(super) fn gateway(&self) -> anyhow::Result<SocketAddr> {
        tcp(&self.running.endpoints.gateway)
    }

    pub(super) fn admin(&self) -> anyhow::Result<SocketAddr> {
        tcp(&self.running.endpoints.admin)
    }

    /// Finishes requests in flight, unless a signal comes.
    pub(super) async fn close(mut self, stop: &mut StopSignals) {
        self.running.closing.begin();
        let workers = self.running.workers;
        let ended = tokio::task::spawn_blocking(move || workers.join());
        tokio::select! {
            _ = ended => {}
            () = stop.next() => {}
        }
        self.server.end();
    }
}

/// The environment has no say: the demo is the same everywhere. Its keys open nothing, so they may
/// stand in the text.
fn sources(upstream: String) -> Sources {
    let name = "the demo's configuration".to_owned();
    let file = File::Text { name, text: CONFIGURATION.to_owned() };
    let flags = Flags { upstream: vec![upstream], ..Flags::default() };
    Sources { file: Some(file), flags, ..Sources::default() }
}

fn tcp(addresses: &[ListenAddress]) -> anyhow::Result<SocketAddr> {
    let tcp = addresses.iter().find_map(|address| match address {
        ListenAddress::Tcp(address) => Some(*address),
        ListenAddress::Unix(_) => None,
    });
    tcp.context("the demo listens nowhere")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_keys_would_be_warned_of() {
        let loaded = config::load(&sources("http://127.0.0.1:3000".to_owned())).unwrap();
        for warning in loaded.warnings {
            let text = warning.to_string();
            assert!(text.contains("api_key") && text.contains("a secret in the file"), "{text}");
        }
    }
}
