//! TLS: certificates from files, and new ones without a restart.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use arc_swap::ArcSwap;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::config::TlsFiles;
use crate::file;

/// What clients may choose from, the best first.
const PROTOCOLS: [&[u8]; 2] = [HTTP2, b"http/1.1"];

const HTTP2: &[u8] = b"h2";

/// How TLS is spoken. Clones are one: what is reloaded through one, all have.
#[derive(Clone)]
pub(crate) struct Tls {
    files: Arc<TlsFiles>,
    config: Arc<ArcSwap<ServerConfig>>,
}

impl Tls {
    /// Loads a certificate and its key. Errors name the file.
    pub(crate) fn load(files: &TlsFiles) -> anyhow::Result<Self> {
        let config = Arc::new(ArcSwap::new(Arc::new(load(files)?)));
        Ok(Self { files: Arc::new(files.clone()), config })
    }

    /// Loads the files again. New connections have what is in them now; if anything is wrong with
    /// them, all stays as it was.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        self.config.store(Arc::new(load(&self.files)?));
        Ok(())
    }

    pub(super) fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> Accept<S> {
        TlsAcceptor::from(self.config.load_full()).accept(stream)
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("files", &self.files).finish_non_exhaustive()
    }
}

/// Whether the handshake decided on HTTP/2, if it decided on anything.
pub(super) fn negotiated_http2<S>(stream: &TlsStream<S>) -> Option<bool> {
    Some(stream.get_ref().1.alpn_protocol()? == HTTP2)
}

fn load(files: &TlsFiles) -> anyhow::Result<ServerConfig> {
    let certificates = certificates(&files.certificate)?;
    let key = key(&files.key)?;
    let provider = Arc::new(ring::default_provider());
    let clients = match &files.client_ca {
        Some(path) => clients_of(path, &provider)?,
        None => WebPkiClientVerifier::no_client_auth(),
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_single_cert(certificates, key)
        .with_context(|| {
            let (certificate, key) = (files.certificate.display(), files.key.display());
            format!("cannot use the certificate in {certificate} with the key in {key}")
        })?;
    config.alpn_protocols = PROTOCOLS.map(Vec::from).to_vec();
    config.ticketer = ring::Ticketer::new()?;
    Ok(config)
}

/// Lets only those clients in whose certificates one of the file's has signed.
fn clients_of(
    path: &Path,
    provider: &Arc<CryptoProvider>,
) -> anyhow::Result<Arc<dyn ClientCertVerifier>> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path)? {
        roots.add(certificate).with_context(|| cannot_read("a certificate", path))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider.clone());
    verifier.build().with_context(|| cannot_read("certificates of clients", path))
}

/// The whole chain.
fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let pem = file::read_pem(path).with_context(|| cannot_read("a certificate", path))?;
    let chain = CertificateDer::pem_slice_iter(&pem.bytes).collect::<Result<Vec<_>, _>>();
    let chain = chain.with_context(|| cannot_read("a certificate", path))?;
    anyhow::ensure!(!chain.is_empty(), "there is no certificate in {}", path.display());
    Ok(chain)
}

fn key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let pem = file::read_pem(path).with_context(|| cannot_read("a private key", path))?;
    match PrivateKeyDer::from_pem_slice(&pem.bytes) {
        Err(pem::Error::NoItemsFound) => {
            anyhow::bail!("there is no private key in {}", path.display())
        }
        key => key.with_context(|| cannot_read("a private key", path)),
    }
}

fn cannot_read(what: &str, path: &Path) -> String {
    format!("cannot read {what} from {}", path.display())
}
