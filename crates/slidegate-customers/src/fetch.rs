//! One `GET`, within a deadline and a number of bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;

/// Fetches over HTTP and HTTPS, with connections that are kept.
#[derive(Debug, Clone)]
pub(crate) struct Fetcher {
    client: Client<HttpsConnector<HttpConnector>, Empty<Bytes>>,
    deadline: Duration,
    max_bytes: usize,
}

/// A response that has arrived whole.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// Why nothing was fetched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("no answer within {0:?}")]
    Late(Duration),
    #[error("{0}")]
    Connection(String),
    #[error("the answer could not be read: {0}")]
    Body(String),
}

impl Fetcher {
    /// Trusts the certificates of public authorities, and of these.
    pub(crate) fn new(authorities: &RootCertStore, deadline: Duration, max_bytes: usize) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config(authorities))
            .https_or_http()
            .enable_http1()
            .build();
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(30))
            .build(connector);
        Self { client, deadline, max_bytes }
    }

    pub(crate) async fn get(&self, url: Uri, headers: &HeaderMap) -> Result<Fetched, FetchError> {
        let mut request = Request::new(Empty::new());
        *request.uri_mut() = url;
        *request.headers_mut() = headers.clone();
        let exchange = async {
            let response =
                self.client.request(request).await.map_err(|error| connection(&error))?;
            let (head, body) = response.into_parts();
            let body = Limited::new(body, self.max_bytes).collect().await;
            let body = body.map_err(|error| FetchError::Body(error.to_string()))?.to_bytes();
            Ok(Fetched { status: head.status, body })
        };
        let late = |_| Err(FetchError::Late(self.deadline));
        timeout(self.deadline, exchange).await.unwrap_or_else(late)
    }
}

/// The error with its causes, the first of which alone says nothing.
fn connection(error: &hyper_util::client::legacy::Error) -> FetchError {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text += &format!(": {error}");
        cause = error.source();
    }
    FetchError::Connection(text)
}

/// A client that trusts the certificates of public authorities, and of these.
pub(crate) fn tls_config(authorities: &RootCertStore) -> ClientConfig {
    let mut roots = authorities.clone();
    roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring supports the default TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
