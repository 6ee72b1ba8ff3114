//! HTTP/2 on both sides of the gateway.

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
pub(crate) struct Http2Client {
    runtime: Runtime,
    sender: http2::SendRequest<Frames>,
}

/// A response with all of its body.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Http2Client {
    /// With prior knowledge.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let runtime = runtime();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            handshake(TokioIo::new(stream)).await
        });
        Self { runtime, sender }
    }

    /// Over TLS, by ALPN.
    pub(crate) fn connect_tls(address: SocketAddr, ca: &Path) -> Self {
        let runtime = runtime();
        let sender = runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let connector = tokio_rustls::TlsConnector::from(Arc::new(tls(ca)));
            let name = ServerName::try_from("localhost").unwrap();
            let stream = connector.connect(name, stream).await.unwrap();
            assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
            handshake(TokioIo::new(stream)).await
        });
        Self { runtime, sender }
    }

    pub(crate) fn get(&self, uri: &str) -> Heard {
        self.send(Request::get(uri).body(frames([])).unwrap()).expect("a response")
    }

    pub(crate) fn send(&self, request: Request<Frames>) -> Result<Heard, hyper::Error> {
        let mut sender = self.sender.clone();
        self.runtime.block_on(async move {
            sender.ready().await?;
            heard(sender.send_request(request).await?).await
        })
    }

    /// The statuses of many at once.
    pub(crate) fn statuses(&self, requests: Vec<Request<Frames>>) -> Vec<StatusCode> {
        self.runtime.block_on(async {
            let tasks: Vec<_> = requests
                .into_iter()
                .map(|request| {
                    let mut sender = self.sender.clone();
                    tokio::spawn(async move {
                        sender.ready().await?;
                        heard(sender.send_request(request).await?).await
                    })
                })
                .collect();
            let mut statuses = Vec::new();
            for task in tasks {
                statuses.push(task.await.unwrap().expect("a response").status);
            }
            statuses
        })
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

async fn handshake<I>(io: I) -> http2::SendRequest<Frames>
where
    I: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (sender, connection) = http2::handshake(TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn heard(response: Response<Incoming>) -> Result<Heard, hyper::Error> {
    let (head, body) = response.into_parts();
    let collected = body.collect().await?;
    let trailers = collected.trailers().cloned();
    Ok(Heard { status: head.status, headers: head.headers, body: collected.to_bytes(), trailers })
}

fn tls(ca: &Path) -> rustls::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    let pem = fs::read(ca).unwrap();
    roots.add(CertificateDer::from_pem_slice(&pem).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// A body made of frames.
#[derive(Default)]
pub(crate) struct Frames(VecDeque<Frame<Bytes>>);

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
pub(crate) fn frames(frames: impl IntoIterator<Item = Frame<Bytes>>) -> Frames {
    Frames(frames.into_iter().collect())
}

pub(crate) fn data(text: &str) -> Frame<Bytes> {
    Frame::data(Bytes::copy_from_slice(text.as_bytes()))
}

/// Trailers of one field.
pub(crate) fn trailer(name: &'static str, value: &'static str) -> Frame<Bytes> {
    Frame::trailers(HeaderMap::from_iter([(
        HeaderName::from_static(name),
        HeaderValue::from_static(value),
    )]))
}

/// An upstream that speaks HTTP/2 with prior knowledge and answers as gRPC does: the body comes
/// back, and a status in the trailers.
pub(crate) struct Http2Upstream {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Request<Echoed>>>>,
    end: watch::Sender<usize>,
    runtime: Option<Runtime>,
}

/// The body of a request that was echoed.
#[derive(Debug, Clone)]
pub(crate) struct Echoed {
    pub(crate) body: Bytes,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Http2Upstream {
    pub(crate) fn start() -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// At an address that may have been another's before.
    pub(crate) fn start_at(address: SocketAddr) -> Self {
        let (runtime, heard) = (runtime(), Arc::<Mutex<Vec<_>>>::default());
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ends) = watch::channel(0);
        let of_task = Arc::clone(&heard);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (heard, mut ends) = (Arc::clone(&of_task), ends.clone());
                ends.mark_unchanged();
                let service = service_fn(move |request| echo(Arc::clone(&heard), request));
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
        Self { address, heard, end, runtime: Some(runtime) }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections that there are.
    pub(crate) fn hang_up(&self) {
        self.end.send_modify(|times| *times += 1);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn heard(&self) -> Vec<Request<Echoed>> {
        self.heard.lock().unwrap().clone()
    }
}

async fn echo(
    heard: Arc<Mutex<Vec<Request<Echoed>>>>,
    request: Request<Incoming>,
) -> Result<Response<Frames>, hyper::Error> {
    let (head, body) = request.into_parts();
    let collected = body.collect().await?;
    let trailers = collected.trailers().cloned();
    let body = collected.to_bytes();
    let echoed = Echoed { body: body.clone(), trailers };
    heard.lock().unwrap().push(Request::from_parts(head, echoed));
    let response = Response::builder().header("content-type", "application/grpc");
    let body = frames([Frame::data(body), trailer("grpc-status", "0")]);
    Ok(response.body(body).expect("good headers"))
}

impl Drop for Http2Upstream {
    fn drop(&mut self) {
        self.runtime.take().into_iter().for_each(Runtime::shutdown_background);
    }
}
