//! Certificates for a connection by TLS.

use std::fmt;

use redis::{ClientTlsConfig, TlsCertificates};

/// Whom to trust, and who to be, on a connection by TLS: all in PEM. Without a certificate
/// authority, the machine's own are trusted.
#[derive(Clone, Default)]
pub struct RedisTls {
    authority: Option<Vec<u8>>,
    client: Option<ClientTlsConfig>,
}

impl RedisTls {
    /// Trusts what the machine trusts, and shows no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts servers that this authority vouches for, and no others.
    #[must_use]
    pub fn authority(self, pem: impl Into<Vec<u8>>) -> Self {
        Self { authority: Some(pem.into()), ..self }
    }

    /// Shows this certificate to the server.
    #[must_use]
    pub fn client(self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        let client = ClientTlsConfig { client_cert: certificate.into(), client_key: key.into() };
        Self { client: Some(client), ..self }
    }

    pub(crate) fn certificates(&self) -> TlsCertificates {
        TlsCertificates { client_tls: self.client.clone(), root_cert: self.authority.clone() }
    }
}

impl fmt::Debug for RedisTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisTls")
            .field("authority", &self.authority.is_some())
            .field("client", &self.client.is_some())
            .finish()
    }
}
