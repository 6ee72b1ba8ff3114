//! TLS certificates, replaceable without a restart.

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

/// Supported protocols, in order of preference.
const ALPN_PROTOCOLS: [&[u8]; 2] = [ALPN_HTTP2, b"http/1.1"];

const ALPN_HTTP2: &[u8] = b"h2";

/// The TLS configuration of a listener. Clones share it: `replace` on one applies to all.
#[derive(Clone)]
pub struct Tls(Arc<ArcSwap<ServerConfig>>);

/// A certificate chain and its key in PEM, and the CA certificates for clients if these must present
/// a certificate.
#[derive(Debug, Clone)]
pub struct TlsPem {
    /// The whole chain.
    pub certificate: Vec<u8>,
    /// The private key.
    pub key: Vec<u8>,
    /// CA certificates. A client must present a certificate signed by one of them.
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
    /// A client CA certificate is malformed.
    #[error("cannot read a certificate")]
    ClientCa(#[source] pem::Error),
    /// There is no client CA certificate.
    #[error("there is no certificate")]
    NoClientCa,
    /// A client CA certificate cannot be used as a root.
    #[error("cannot read a certificate")]
    ClientRoot(#[source] rustls::Error),
    /// The client CA certificates cannot be used.
    #[error("cannot read certificates of clients")]
    ClientVerifier(#[source] VerifierBuilderError),
    /// The key does not match the certificate.
    #[error("cannot use the certificate with the key")]
    Mismatch(#[source] rustls::Error),
    /// The cryptography provider failed.
    #[error("cannot set up TLS")]
    Setup(#[source] rustls::Error),
}

impl Tls {
    /// Creates a configuration from PEM.
    pub fn new(pem: &TlsPem) -> Result<Self, TlsError> {
        Ok(Self(Arc::new(ArcSwap::from_pointee(configure(pem)?))))
    }

    /// Uses these for new connections. On an error, the previous configuration stays in use.
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

/// Whether ALPN selected HTTP/2. `None` if it selected no protocol.
pub(super) fn negotiated_http2<S>(stream: &TlsStream<S>) -> Option<bool> {
    Some(stream.get_ref().1.alpn_protocol()? == ALPN_HTTP2)
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
    config.alpn_protocols = ALPN_PROTOCOLS.map(Vec::from).to_vec();
    config.ticketer = ring::Ticketer::new().map_err(TlsError::Setup)?;
    Ok(config)
}

/// Accepts only clients with a certificate signed by one of these CAs.
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
