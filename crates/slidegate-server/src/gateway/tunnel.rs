//! Connections that have changed to another protocol, such as WebSocket: bytes, both ways.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderValue, Response, header, response};
use tokio::io::{AsyncWriteExt, copy_bidirectional};

use super::body::UpstreamBody;
use super::http1::Http1Connection;
use crate::listener::{OnUpgrade, Upgraded};

/// Counts the tunnels that are open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tunnels(Arc<AtomicUsize>);

/// A tunnel's part of the count, until dropped.
struct OpenTunnel(Tunnels);

impl Tunnels {
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn begin(&self) -> OpenTunnel {
        self.0.fetch_add(1, Ordering::Relaxed);
        OpenTunnel(self.clone())
    }
}

impl Drop for OpenTunnel {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends the switching response and joins both sides once the client has switched.
pub(crate) fn open(
    client: OnUpgrade,
    mut head: response::Parts,
    upstream: Http1Connection,
    tunnels: &Tunnels,
) -> Response<UpstreamBody> {
    let open = tunnels.begin();
    tokio::spawn(async move {
        if let Some(client) = client.upgraded().await {
            // Whichever side breaks off, the other is closed, too.
            let _ = join(client, upstream).await;
        }
        drop(open);
    });
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    Response::from_parts(head, UpstreamBody::empty())
}

async fn join(mut client: Upgraded, upstream: Http1Connection) -> io::Result<()> {
    let (mut upstream, early) = upstream.into_stream();
    client.write_all(&early).await?;
    client.flush().await?;
    copy_bidirectional(&mut client, &mut upstream).await?;
    Ok(())
}
