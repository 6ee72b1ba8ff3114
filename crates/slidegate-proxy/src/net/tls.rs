//! TLS: certificates, and new ones without a restart.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

/// What clients may choose from, the best first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

const HTTP2: &[u8] = b"h2";

/// How TLS is spoken. Clones are one: what is replaced through one, all have.
#[derive(Clone)]
pub struct Tls(Arc<ArcSwap<ServerConfig>>);

/// A certificate chain and its key, in PEM, and the authorities of clients if these need a
/// certificate.
#[derive(Debug, Clone)]
pub struct TlsPem {
    /// The whole chain.
    pub certificate: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
    /// Certificates, one of which must have signed that of a client.
    pub client_ca: Option<Vec<u8>>,
}

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A certificate is malformed.
    #[error("cannot read a certificate")]
    Certificate(#[source] pem::Error),
    /// There is no certificate.
    #[error("there is no certificate")]
    NoCertificate,
    /// The key is malformed.
    #[error("cannot read a private key")]
    Key(#[source] pem::Error),
    /// There is no key.
    #[error("there is no private key")]
    NoKey,
    /// A certificate of the clients' authorities is malformed.
    #[error("cannot read a certificate")]
    ClientCa(#[source] pem::Error),
    /// The clients' authorities have no certificate.
    #[error("there is no certificate")]
    NoClientCa,
    /// A certificate of the clients' authorities cannot be used.
    #[error("cannot read a certificate")]
    ClientRoot(#[source] rustls::Error),
    /// The clients' authorities cannot be used.
    #[error("cannot read certificates of clients")]
    ClientVerifier(#[source] VerifierBuilderError),
    /// The key is not that of the certificate.
    #[error("cannot use the certificate with the key")]
    Mismatch(#[source] rustls::Error),
    /// The cryptography cannot be used.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
}

impl Tls {
    /// Speaks TLS with these.
    pub fn new(pem: &TlsPem) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(configure(pem)?))))
    }

    /// Speaks TLS with these on new connections. If anything is wrong with them, all stays as it was.
    pub fn replace(&self, pem: &TlsPem) -> Result<(), TlsError> {
        self.0.store(Arc::new(configure(pem)?));
        Ok(())
    }

    pub(super) fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Accept<S> {
        TlsAcceptor::from(self.0.load_full()).accept(stream)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

/// Whether the handshake decided on HTTP/2, if it decided on anything.
pub(super) fn negotiated_http2<S>(stream: &TlsStream<S>) -> Option<bool> {
    Some(stream.get_ref().1.alpn_protocol()? == HTTP2)
}

fn configure(pem: &TlsPem) -> Result<ServerConfig, TlsError> {
    let chain = certificates(&pem.certificate).map_err(TlsError::Certificate)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate);
    }
    let key = PrivateKeyDer::from_pem_slice(&pem.key).map_err(|error| match error {
        pem::Error::NoItemsFound => TlsError::NoKey,
        error => TlsError::Key(error),
    })?;
    let provider = Arc::new(ring::default_provider());
    let clients = match &pem.client_ca {
        Some(authorities) => clients_of(authorities, &provider)?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Setup)?
        .with_client_cert_verifier(clients)
        .with_single_cert(chain, key)
        .map_err(TlsError::Mismatch)?;
    config.alpn_protocols = PROTOCOLS.map(Vec::from).to_vec();
    config.ticketer = ring::Ticketer::new().map_err(TlsError::Setup)?;
    Ok(config)
}

/// Lets only those clients in whose certificates one of these has signed.
fn clients_of(
    authorities: &[u8],
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(authorities).map_err(TlsError::ClientCa)? {
        roots.add(certificate).map_err(TlsError::ClientRoot)?;
    }
    if roots.is_empty() {
        return Err(TlsError::NoClientCa);
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    verifier.build().map_err(TlsError::ClientVerifier)
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}
