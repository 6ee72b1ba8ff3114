//! Connections that have changed to another protocol, such as WebSocket: bytes, both ways.

use std::io;
use std::time::Duration;

use http::{HeaderValue, Response, header};
use hyper::body::Incoming;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::time::{Instant, sleep_until};

use super::body::ProxyBody;
use super::in_flight::InFlightPermit;
use super::pool::Http1Connection;
use super::proxy_headers;

const BUFFER_BYTES: usize = 16 * 1024;

/// Passes the switching response on and joins both sides once the client has switched. The client's
/// stream keeps its slot among the connections, so that draining waits for tunnels too.
pub(crate) fn open(
    client: OnUpgrade,
    mut response: Response<Incoming>,
    connection: Http1Connection,
    idle: Duration,
    permit: InFlightPermit,
) -> Response<ProxyBody> {
    let upstream = hyper::upgrade::on(&mut response);
    tokio::spawn(async move {
        let (client, upstream, ()) = tokio::join!(client, upstream, connection.upgraded());
        drop(permit);
        if let (Ok(client), Ok(upstream)) = (client, upstream) {
            join(client, upstream, idle).await;
        }
    });
    let upgrade = response.headers().get(header::UPGRADE).cloned();
    let mut response = response.map(|_| ProxyBody::empty());
    if proxy_headers::clean_response(response.headers_mut()).is_ok()
        && let Some(protocol) = upgrade
    {
        let headers = response.headers_mut();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, protocol);
    }
    response
}

/// Passes bytes both ways until both sides have ended, one breaks off, or nothing has passed for as
/// long as the idle timeout.
async fn join(client: Upgraded, upstream: Upgraded, idle: Duration) {
    let (client_reader, client_writer) = split(TokioIo::new(client));
    let (upstream_reader, upstream_writer) = split(TokioIo::new(upstream));
    let last = Mutex::new(Instant::now());
    let idled = async {
        loop {
            let deadline = *last.lock() + idle;
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    };
    tokio::select! {
        // Whichever side breaks off, the other is closed too.
        _ = async {
            tokio::try_join!(
                copy(client_reader, upstream_writer, &last),
                copy(upstream_reader, client_writer, &last),
            )
        } => {}
        () = idled => {}
    }
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    last: &Mutex<Instant>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let length = from.read(&mut buffer).await?;
        *last.lock() = Instant::now();
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..length]).await?;
        to.flush().await?;
    }
}
