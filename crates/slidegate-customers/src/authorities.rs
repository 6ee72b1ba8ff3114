//! Certificates of authorities that a server's certificate may be from, besides public ones.

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

/// Certificates of authorities.
pub type Authorities = RootCertStore;

/// A text that has no certificate of an authority.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected certificates of authorities in PEM: {0}")]
pub struct AuthoritiesError(String);

/// The certificates of authorities in a PEM text, which may be empty.
pub fn authorities(pem: &[u8]) -> Result<Authorities, AuthoritiesError> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| AuthoritiesError(error.to_string()))?;
        store.add(certificate).map_err(|error| AuthoritiesError(error.to_string()))?;
    }
    match store.is_empty() && !pem.is_empty() {
        true => Err(AuthoritiesError("there is none".to_owned())),
        false => Ok(store),
    }
}
