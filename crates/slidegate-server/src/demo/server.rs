//! The gateway of the demo, which is the server of `slidegate serve` with a built-in configuration,
//! and the small API behind it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context;
use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, header};
use slidegate::MemoryStore;
use slidegate_proxy::ListenAddress;
use tokio::net::TcpListener;

use crate::config::{self, File, Flags, Loaded, Sources};
use crate::server::{RunningServer, Server};

/// A gateway that serves, and its admin endpoint.
pub(super) struct DemoServer {
    pub(super) gateway: SocketAddr,
    pub(super) admin: SocketAddr,
    _running: RunningServer,
}

const CONFIGURATION: &str = include_str!("configuration.toml");

impl DemoServer {
    /// Starts a gateway in front of this upstream, on free ports.
    pub(super) async fn start(upstream: SocketAddr) -> anyhow::Result<Self> {
        let sources = sources(upstream);
        let Loaded { config, .. } = config::load(&sources)?;
        let server = Server::new(config, sources, MemoryStore::new().into(), None)?;
        let running = RunningServer::new(&server).await?;
        let (gateway, admin) = (tcp(&running.endpoints.gateway)?, tcp(&running.endpoints.admin)?);
        Ok(Self { gateway, admin, _running: running })
    }
}

/// The environment is not read: the demo is the same everywhere. Its keys open nothing, so they may
/// be in the text.
fn sources(upstream: SocketAddr) -> Sources {
    let name = "the demo's configuration".to_owned();
    let file = File::Text { name, text: CONFIGURATION.to_owned() };
    let flags = Flags { upstream: vec![format!("http://{upstream}")], ..Flags::default() };
    Sources { file: Some(file), flags, ..Sources::default() }
}

fn tcp(addresses: &[ListenAddress]) -> anyhow::Result<SocketAddr> {
    let reached = addresses.iter().find_map(ListenAddress::reached_at);
    reached.context("the demo's server has no TCP listener")
}

/// The API behind the gateway. It counts the clients' requests that reach it.
pub(super) struct DemoUpstream {
    pub(super) address: SocketAddr,
    pub(super) answered: Arc<AtomicUsize>,
}

impl DemoUpstream {
    /// Starts the API on a free port.
    pub(super) async fn start() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .context("the demo's API cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        let answered = Arc::new(AtomicUsize::new(0));
        let api = Router::new().fallback(answer).with_state(answered.clone());
        tokio::spawn(axum::serve(listener, api).into_future());
        Ok(Self { address, answered })
    }
}

async fn answer(State(answered): State<Arc<AtomicUsize>>, request: Request) -> Response {
    // Requests by hand from this machine are not a client's.
    let client = request.headers().get("x-forwarded-for");
    if client.is_some_and(|client| !client.as_bytes().starts_with(b"127.")) {
        answered.fetch_add(1, Ordering::Relaxed);
    }
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/reports") => (StatusCode::OK, "{\"reports\":[\"2026-11\"]}\n"),
        (&Method::GET, "/v1/search") => (StatusCode::OK, "{\"found\":[]}\n"),
        (&Method::POST, "/login") => (StatusCode::UNAUTHORIZED, "{\"error\":\"wrong password\"}\n"),
        _ => {
            (StatusCode::NOT_FOUND, "{\"error\":\"there is /v1/reports, /v1/search and /login\"}\n")
        }
    };
    (status, [(header::CONTENT_TYPE, "application/json")], body).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::clients::CLIENTS;

    #[test]
    fn clients_are_checked_against_the_quotas_in_force() {
        let loaded = config::load(&sources(([127, 0, 0, 1], 3000).into())).unwrap();
        let policies = loaded.config.limiter.policies;
        let plans = policies.plans().into_iter().map(|plan| plan.quotas.as_slice().to_vec());
        let own = policies.iter().map(|policy| policy.quotas().to_vec());
        let quotas: Vec<String> =
            plans.chain(own).filter_map(|quotas| quotas.first().map(ToString::to_string)).collect();
        for client in &CLIENTS {
            assert!(quotas.iter().any(|quota| quota == client.quota), "{quotas:?}");
        }
    }

    #[test]
    fn only_keys_of_the_demos_configuration_would_be_warned_of() {
        let loaded = config::load(&sources(([127, 0, 0, 1], 3000).into())).unwrap();
        for warning in loaded.warnings {
            let text = warning.to_string();
            assert!(text.contains("api_key") && text.contains("a secret in the file"), "{text}");
        }
    }
}
