//! HTTP/2 on both sides of a gateway: a client and an upstream.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

/// A client's HTTP/2 connection.
#[derive(Debug)]
pub struct Http2Client {
    runtime: Runtime,
    sender: http2::SendRequest<Frames>,
}

/// A response with all of its body.
#[derive(Debug)]
pub struct Http2Response {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
    /// Its trailers, if there were any.
    pub trailers: Option<HeaderMap>,
}

impl Http2Client {
    /// Connects with prior knowledge.
    #[must_use]
    pub fn connect(address: SocketAddr) -> Self {
        let runtime = runtime();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("the server listens");
            handshake(TokioIo::new(stream)).await
        });
        Self { runtime, sender }
    }

    /// Connects over TLS, with HTTP/2 by ALPN.
    #[must_use]
    pub fn connect_tls(address: SocketAddr, ca: &Path) -> Self {
        let runtime = runtime();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.expect("the server listens");
            let connector = tokio_rustls::TlsConnector::from(Arc::new(tls(ca)));
            let name = ServerName::try_from("localhost").expect("a host name");
            let stream = connector.connect(name, stream).await.expect("a TLS handshake");
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            handshake(TokioIo::new(stream)).await
        });
        Self { runtime, sender }
    }

    /// The response to a `GET`.
    pub fn get(&self, uri: &str) -> Http2Response {
        self.send(Request::get(uri).body(frames([])).expect("a valid URI")).expect("a response")
    }

    /// The response to a request.
    ///
    /// # Errors
    /// If the connection or the stream ends before the response does.
    pub fn send(&self, request: Request<Frames>) -> Result<Http2Response, hyper::Error> {
        let mut sender = self.sender.clone();
        self.runtime.block_on(async move {
            sender.ready().await?;
            collect(sender.send_request(request).await?).await
        })
    }

    /// Sends requests at once, and returns the statuses of their responses in order.
    pub fn statuses(&self, requests: Vec<Request<Frames>>) -> Vec<StatusCode> {
        self.runtime.block_on(async {
            let tasks: Vec<_> = requests
                .into_iter()
                .map(|request| {
                    let mut sender = self.sender.clone();
                    tokio::spawn(async move {
                        sender.ready().await?;
                        collect(sender.send_request(request).await?).await
                    })
                })
                .collect();
            let mut statuses = Vec::new();
            for task in tasks {
                statuses.push(task.await.expect("no panic").expect("a response").status);
            }
            statuses
        })
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

async fn handshake<I>(io: I) -> http2::SendRequest<Frames>
where
    I: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (sender, connection) =
        http2::handshake(TokioExecutor::new(), io).await.expect("an HTTP/2 handshake");
    tokio::spawn(connection);
    sender
}

async fn collect(response: Response<Incoming>) -> Result<Http2Response, hyper::Error> {
    let (head, body) = response.into_parts();
    let collected = body.collect().await?;
    let trailers = collected.trailers().cloned();
    Ok(Http2Response {
        status: head.status,
        headers: head.headers,
        body: collected.to_bytes(),
        trailers,
    })
}

fn tls(ca: &Path) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    let pem = fs::read(ca).expect("a readable file");
    let authority = CertificateDer::from_pem_slice(&pem).expect("a certificate in PEM");
    roots.add(authority).expect("a certificate of an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().expect("versions of ring");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// A body made of frames.
#[derive(Debug, Default)]
pub struct Frames(VecDeque<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(Ok))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }
}

/// A body of these frames.
#[must_use]
pub fn frames(frames: impl IntoIterator<Item = Frame<Bytes>>) -> Frames {
    Frames(frames.into_iter().collect())
}

/// A frame of data.
#[must_use]
pub fn data(text: &str) -> Frame<Bytes> {
    Frame::data(Bytes::copy_from_slice(text.as_bytes()))
}

/// A frame with one trailer.
#[must_use]
pub fn trailer(name: &'static str, value: &'static str) -> Frame<Bytes> {
    Frame::trailers(HeaderMap::from_iter([(
        HeaderName::from_static(name),
        HeaderValue::from_static(value),
    )]))
}

/// An upstream that speaks HTTP/2 with prior knowledge and answers as gRPC does: the body comes
/// back, and a status in the trailers.
#[derive(Debug)]
pub struct Http2Upstream {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Request<Echoed>>>>,
    end: watch::Sender<usize>,
    /// Dropped with its tasks, so that the port is closed when the drop returns.
    _runtime: Runtime,
}

/// The body of a received request, which was echoed.
#[derive(Debug, Clone)]
pub struct Echoed {
    /// The body.
    pub body: Bytes,
    /// The trailers, if there were any.
    pub trailers: Option<HeaderMap>,
}

impl Http2Upstream {
    /// Starts one on a free port of loopback.
    #[must_use]
    pub fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// Starts one at a given address.
    #[must_use]
    pub fn start_at(address: SocketAddr) -> Self {
        let (runtime, received) = (runtime(), Arc::<Mutex<Vec<_>>>::default());
        let listener = runtime.block_on(TcpListener::bind(address)).expect("the port is free");
        let address = listener.local_addr().expect("it is bound");
        let (end, ends) = watch::channel(0);
        let of_task = Arc::clone(&received);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (received, mut ends) = (Arc::clone(&of_task), ends.clone());
                ends.mark_unchanged();
                let service = service_fn(move |request| echo(Arc::clone(&received), request));
                let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let connection = server.serve_connection(TokioIo::new(stream), service);
                tokio::spawn(async move {
                    tokio::select! {
                        _ = connection => {}
                        _ = ends.changed() => {}
                    }
                });
            }
        });
        Self { address, received, end, _runtime: runtime }
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all open connections.
    pub fn hang_up(&self) {
        self.end.send_modify(|times| *times += 1);
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that it has received.
    #[must_use]
    pub fn received(&self) -> Vec<Request<Echoed>> {
        self.received.lock().expect("no panic while locked").clone()
    }
}

async fn echo(
    received: Arc<Mutex<Vec<Request<Echoed>>>>,
    request: Request<Incoming>,
) -> Result<Response<Frames>, hyper::Error> {
    let (head, body) = request.into_parts();
    let collected = body.collect().await?;
    let trailers = collected.trailers().cloned();
    let body = collected.to_bytes();
    let echoed = Echoed { body: body.clone(), trailers };
    received.lock().expect("no panic while locked").push(Request::from_parts(head, echoed));
    let response = Response::builder().header("content-type", "application/grpc");
    let body = frames([Frame::data(body), trailer("grpc-status", "0")]);
    Ok(response.body(body).expect("good headers"))
}
