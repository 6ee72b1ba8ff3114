//! A small identity provider, which serves a key set and can fail in the usual ways.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use slidegate_testbed::Certificates;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// Serves a key set on a free port.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    tls: Option<TlsAcceptor>,
    task: Option<JoinHandle<()>>,
}

struct Shared {
    answer: Mutex<Answer>,
    fetches: AtomicUsize,
}

/// What the provider answers.
#[derive(Clone)]
pub(crate) enum Answer {
    Keys(String),
    Status(StatusCode),
    Nothing,
}

impl Provider {
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::start_with(answer, None).await
    }

    /// One that speaks HTTPS.
    pub(crate) async fn start_tls(answer: Answer, certificates: &Certificates) -> Self {
        Self::start_with(answer, Some(acceptor(certificates))).await
    }

    async fn start_with(answer: Answer, tls: Option<TlsAcceptor>) -> Self {
        let shared = Shared { answer: Mutex::new(answer), fetches: AtomicUsize::new(0) };
        let (address, shared) = (([127, 0, 0, 1], 0).into(), Arc::new(shared));
        let mut provider = Self { address, shared, tls, task: None };
        provider.resume().await;
        provider
    }

    pub(crate) fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}/jwks.json", self.address)
    }

    pub(crate) fn answer(&self, answer: Answer) {
        *self.shared.answer.lock() = answer;
    }

    /// How often the key set was asked for.
    pub(crate) fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::SeqCst)
    }

    /// Ends it with all its connections.
    pub(crate) async fn stop(&mut self) {
        let task = self.task.take().expect("it runs");
        task.abort();
        let _ = task.await;
    }

    /// Lets it listen, where it listened before.
    pub(crate) async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.expect("the port is free");
        self.address = listener.local_addr().expect("it is bound");
        self.task = Some(tokio::spawn(serve(listener, Arc::clone(&self.shared), self.tls.clone())));
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, tls: Option<TlsAcceptor>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (shared, tls) = (Arc::clone(&shared), tls.clone());
        connections.spawn(async move {
            match tls {
                None => serve_connection(stream, shared).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve_connection(stream, shared).await;
                    }
                }
            }
        });
    }
}

async fn serve_connection(stream: impl AsyncRead + AsyncWrite + Unpin, shared: Arc<Shared>) {
    let service = service_fn(move |_| respond(Arc::clone(&shared)));
    // A client may go away at any time.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(shared: Arc<Shared>) -> Result<Response<Full<Bytes>>, Infallible> {
    shared.fetches.fetch_add(1, Ordering::SeqCst);
    let answer = shared.answer.lock().clone();
    let (status, body) = match answer {
        Answer::Keys(keys) => (StatusCode::OK, keys),
        Answer::Status(status) => (status, String::new()),
        Answer::Nothing => std::future::pending().await,
    };
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    Ok(response)
}

fn acceptor(certificates: &Certificates) -> TlsAcceptor {
    let chain = CertificateDer::from_pem_file(&certificates.server).expect("a certificate");
    let key = PrivateKeyDer::from_pem_file(&certificates.server_key).expect("a key");
    let provider = rustls::crypto::ring::default_provider();
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default TLS versions")
        .with_no_client_auth()
        .with_single_cert(vec![chain], key)
        .expect("the key is the certificate's");
    TlsAcceptor::from(Arc::new(config))
}
