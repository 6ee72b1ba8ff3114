//! The small API behind the gateway.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;

use crate::server::Workers;
use crate::shutdown::{Closing, Shutdown, shutdown};

/// A small API on a thread of its own. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct DemoUpstream {
    address: SocketAddr,
    answered: Arc<AtomicUsize>,
    _open: Closing,
}

impl DemoUpstream {
    /// Begins to listen on a port that is free.
    pub(super) fn begin() -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .context("the demo's API cannot listen on 127.0.0.1")?;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let answered = Arc::new(AtomicUsize::new(0));
        let (open, closed) = shutdown();
        let count = answered.clone();
        Workers::default().begin(move || async move {
            // It only fails for a socket that would block, which this one does not.
            if let Ok(listener) = tokio::net::TcpListener::from_std(listener) {
                serve(listener, count, closed).await;
            }
        })?;
        Ok(Self { address, answered, _open: open })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many of the clients' requests have reached it.
    pub(super) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }
}

async fn serve(listener: tokio::net::TcpListener, count: Arc<AtomicUsize>, mut closed: Shutdown) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = closed.begun() => return,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file handles, most likely; some will be free again.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let count = count.clone();
        let service = service_fn(move |request| {
            if is_of_a_client(&request) {
                count.fetch_add(1, Ordering::Relaxed);
            }
            std::future::ready(Ok::<_, Infallible>(answer(&request)))
        });
        tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    }
}

/// Requests by hand from this machine are not among them.
fn is_of_a_client(request: &Request<Incoming>) -> bool {
    let addresses = request.headers().get("x-forwarded-for");
    addresses.is_some_and(|addresses| !addresses.as_bytes().starts_with(b"127."))
}

fn answer(request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET, "/v1/reports") => (StatusCode::OK, r#"{"reports":["2026-10","2026-11"]}"#),
        (&Method::GET, "/v1/search") => (StatusCode::OK, r#"{"found":[]}"#),
        (&Method::POST, "/login") => (StatusCode::UNAUTHORIZED, r#"{"error":"wrong password"}"#),
        _ => (StatusCode::NOT_FOUND, r#"{"error":"there is /v1/reports, /v1/search and /login"}"#),
    };
    let mut response = Response::new(Full::from(format!("{body}\n")));
    *response.status_mut() = status;
    let json = header::HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}
