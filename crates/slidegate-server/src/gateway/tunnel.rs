//! Connections that have changed to another protocol, such as WebSocket: bytes, both ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Response, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::body::UpstreamBody;
use super::head;

/// Counts the tunnels that are open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tunnels(Arc<AtomicUsize>);

/// A tunnel's part of the count, until dropped.
struct Open(Tunnels);

impl Tunnels {
    pub(crate) fn open(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn begin(&self) -> Open {
        self.0.fetch_add(1, Ordering::Relaxed);
        Open(self.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Joins both sides once each has changed, and tells the client to.
pub(crate) fn open(
    client: OnUpgrade,
    mut response: Response<Incoming>,
    tunnels: &Tunnels,
) -> Response<UpstreamBody> {
    let upstream = hyper::upgrade::on(&mut response);
    let protocol = response.headers().get(header::UPGRADE).cloned();
    let open = tunnels.begin();
    tokio::spawn(async move {
        if let Ok((client, upstream)) = tokio::try_join!(client, upstream) {
            let (mut client, mut upstream) = (TokioIo::new(client), TokioIo::new(upstream));
            // Whichever side breaks off, the other is closed, too.
            let _ = copy_bidirectional(&mut client, &mut upstream).await;
        }
        drop(open);
    });
    head::strip_hop_by_hop(response.headers_mut());
    if let Some(protocol) = protocol {
        head::ask_upgrade(response.headers_mut(), protocol);
    }
    response.map(|_| UpstreamBody::empty())
}
