//! Upgraded connections, such as WebSocket: copies bytes in both directions.

use std::time::Duration;

use http::{HeaderValue, Response, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::time::{Instant, sleep_until};
use tokio_util::io::InspectReader;

use super::body::ProxyBody;
use super::in_flight::InFlightPermit;
use super::pool::Http1Connection;
use super::proxy_headers;

/// Per direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// Forwards the 101 response, and joins both sides once the client has upgraded. The client's stream
/// keeps its connection slot, so draining waits for tunnels too.
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
            join(TokioIo::new(client), TokioIo::new(upstream), idle).await;
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

/// Copies bytes in both directions until both sides have ended, one fails, or neither has sent
/// anything for the idle timeout.
async fn join<S: AsyncRead + AsyncWrite + Unpin>(client: S, upstream: S, idle: Duration) {
    let last_read = Mutex::new(Instant::now());
    let record = |_: &[u8]| *last_read.lock() = Instant::now();
    let mut client = InspectReader::new(client, record);
    let mut upstream = InspectReader::new(upstream, record);
    let idle_timeout = async {
        loop {
            let deadline = *last_read.lock() + idle;
            if deadline <= Instant::now() {
                return;
            }
            sleep_until(deadline).await;
        }
    };
    tokio::select! {
        _ = copy_bidirectional_with_sizes(&mut client, &mut upstream, BUFFER_BYTES, BUFFER_BYTES) => {}
        () = idle_timeout => {}
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const IDLE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn bytes_of_either_side_keep_it_open() {
        let ((mut client, gateway), (gateway_out, mut upstream)) = (duplex(64), duplex(64));
        let tunnel = tokio::spawn(join(gateway, gateway_out, IDLE));
        let began = Instant::now();
        for _ in 0..5 {
            tokio::time::sleep(IDLE * 9 / 10).await;
            client.write_all(b"x").await.unwrap();
            assert_eq!(upstream.read_u8().await.unwrap(), b'x');
        }
        tunnel.await.unwrap();
        assert_eq!(began.elapsed(), IDLE * 45 / 10 + IDLE);
        assert_eq!(client.read(&mut [0]).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_side_that_has_ended_still_receives() {
        let ((mut client, gateway), (gateway_out, mut upstream)) = (duplex(64), duplex(64));
        let tunnel = tokio::spawn(join(gateway, gateway_out, IDLE));
        client.write_all(b"question").await.unwrap();
        client.shutdown().await.unwrap();
        let mut received = String::new();
        upstream.read_to_string(&mut received).await.unwrap();
        upstream.write_all(b"answer").await.unwrap();
        drop(upstream);
        client.read_to_string(&mut received).await.unwrap();
        assert_eq!(received, "questionanswer");
        tunnel.await.unwrap();
    }
}
