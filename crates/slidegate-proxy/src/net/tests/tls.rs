//! TLS with certificates that the openssl program made.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ::http::StatusCode;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use slidegate_testbed::{Directory, Slidegate};

use super::client::{Client, Http2Client};
use super::endpoint::{Endpoint, TEST_TIMEOUT, anywhere, timeouts, until};
use crate::net::{Listeners, Settings, Tls, TlsError, TlsPem, TrustedPeers};
use crate::{Bounds, Timeouts};

fn endpoint(tls: &Tls, timeouts: &Timeouts) -> Endpoint {
    let settings = Settings::new(timeouts, &Bounds::default());
    Endpoint::with(Listeners::bind(&[anywhere()], 1).unwrap(), &settings.with_tls(tls.clone()))
}

/// PEM files.
#[derive(Clone)]
struct TlsFiles {
    certificate: PathBuf,
    key: PathBuf,
    client_ca: Option<PathBuf>,
}

impl TlsFiles {
    fn read(&self) -> TlsPem {
        let read = |path: &PathBuf| std::fs::read(path).unwrap();
        let client_ca = self.client_ca.as_ref().map(read);
        TlsPem { certificate: read(&self.certificate), key: read(&self.key), client_ca }
    }
}

fn load(files: &TlsFiles) -> Result<Tls, TlsError> {
    Tls::new(&files.read())
}

/// Makes a certificate that vouches for itself.
fn certify(directory: &Directory, name: &str) -> TlsFiles {
    let file = |extension| directory.path().join(name).with_extension(extension);
    let files = TlsFiles { certificate: file("crt"), key: file("key"), client_ca: None };
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    openssl.args(["-nodes", "-days", "1", "-subj", "/CN=localhost"]);
    openssl.args(["-addext", "subjectAltName=DNS:localhost"]);
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-keyout").arg(&files.key).arg("-out").arg(&files.certificate);
    let output = openssl.output().expect("these tests need the openssl program: install openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    files
}

/// Shakes hands on a connection, trusting one certificate, perhaps with one of its own.
async fn shake(
    stream: TcpStream,
    certificate: &Path,
    protocols: &[&[u8]],
    own: Option<(&Path, &Path)>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificate = CertificateDer::from_pem_file(certificate).unwrap();
            let key = PrivateKeyDer::from_pem_file(key).unwrap();
            config.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    };
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

async fn connect(
    endpoint: &Endpoint,
    certificate: &Path,
    protocols: &[&[u8]],
) -> std::io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(endpoint.address()).await?;
    shake(stream, certificate, protocols, None).await
}

#[tokio::test]
async fn a_client_chooses_the_http_version() {
    let directory = Directory::new();
    let files = certify(&directory, "one");
    let endpoint = endpoint(&load(&files).unwrap(), &timeouts());

    for protocols in [&[&b"http/1.1"[..]][..], &[]] {
        let stream = connect(&endpoint, &files.certificate, protocols).await.unwrap();
        let mut client = Client::on(stream);
        assert_eq!(client.get("/accepted").await, "Some(127.0.0.1) true");
        assert_eq!(client.get("/again").await, "GET /again");
    }
    // Without a choice, what the client says first tells.
    for protocols in [&[&b"http/1.1"[..], b"h2"][..], &[b"h2"], &[]] {
        let stream = connect(&endpoint, &files.certificate, protocols).await.unwrap();
        let mut client = Http2Client::on(stream).await;
        let expected = (StatusCode::OK, "Some(127.0.0.1) true".to_owned());
        assert_eq!(client.get("/accepted").await.unwrap(), expected);
    }
    endpoint.close().await;
}

#[tokio::test]
async fn a_proxy_header_comes_before_tls() {
    let directory = Directory::new();
    let files = certify(&directory, "one");
    let settings = Settings::new(&timeouts(), &Bounds::default())
        .with_trusted_peers(TrustedPeers::new(|_| true))
        .with_proxy_header()
        .with_tls(load(&files).unwrap());
    let endpoint = Endpoint::with(Listeners::bind(&[anywhere()], 1).unwrap(), &settings);
    let mut client = Client::connect(endpoint.address()).await;
    client.say("PROXY TCP4 203.0.113.7 192.0.2.1 56324 443\r\n").await;
    let stream = shake(client.stream, &files.certificate, &[], None).await.unwrap();
    assert_eq!(Client::on(stream).get("/accepted").await, "Some(203.0.113.7) true");
    endpoint.close().await;
}

#[tokio::test]
async fn with_a_client_ca_clients_need_a_certificate_of_it() {
    let options = Slidegate::options("slidegate");
    let files = options.certificates();
    let tls = TlsFiles {
        certificate: files.server,
        key: files.server_key,
        client_ca: Some(files.ca.clone()),
    };
    let endpoint = endpoint(&load(&tls).unwrap(), &timeouts());
    let directory = Directory::new();
    let stranger = certify(&directory, "stranger");
    for (before, own) in (0..).zip([None, Some((&*stranger.certificate, &*stranger.key))]) {
        let stream = TcpStream::connect(endpoint.address()).await.unwrap();
        // The client's part of the handshake may be over before it is refused.
        if let Ok(stream) = shake(stream, &files.ca, &[], own).await {
            Client::on(stream).end().await;
        }
        until("it is counted", || endpoint.counts.tls_failures() == before + 1).await;
    }
    let stream = TcpStream::connect(endpoint.address()).await.unwrap();
    let own = Some((&*files.client, &*files.client_key));
    let stream = shake(stream, &files.ca, &[b"h2"], own).await.unwrap();
    let mut client = Http2Client::on(stream).await;
    assert_eq!(client.get("/accepted").await.unwrap().1, "Some(127.0.0.1) true");
    endpoint.close().await;

    let wrong = TlsFiles { client_ca: Some(files.client_key.clone()), ..tls };
    assert!(matches!(load(&wrong), Err(TlsError::NoClientCa)));
}

#[tokio::test]
async fn new_files_are_taken_without_a_restart() {
    let directory = Directory::new();
    let (old, new) = (certify(&directory, "old"), certify(&directory, "new"));
    let tls = load(&old).unwrap();
    let endpoint = endpoint(&tls, &timeouts());
    let kept = connect(&endpoint, &old.certificate, &[]).await.unwrap();
    let (old_certificate, new_certificate) =
        (directory.path().join("was"), new.certificate.clone());
    std::fs::copy(&old.certificate, &old_certificate).unwrap();

    // Halfway, when the key is still the other one, nothing changes.
    std::fs::copy(&new.certificate, &old.certificate).unwrap();
    assert!(tls.replace(&old.read()).is_err());
    connect(&endpoint, &old_certificate, &[]).await.unwrap();

    std::fs::copy(&new.key, &old.key).unwrap();
    tls.replace(&old.read()).unwrap();
    connect(&endpoint, &new_certificate, &[]).await.unwrap();
    connect(&endpoint, &old_certificate, &[]).await.unwrap_err();
    // Those who were there before notice nothing.
    assert_eq!(Client::on(kept).get("/").await, "GET /");
    endpoint.close().await;
}

#[tokio::test]
async fn what_is_no_handshake_is_closed_and_so_is_a_slow_one() {
    let directory = Directory::new();
    let tls = load(&certify(&directory, "one")).unwrap();
    let endpoint = endpoint(&tls, &Timeouts { head: Duration::from_millis(150), ..timeouts() });
    let mut garbage = Client::connect(endpoint.address()).await;
    garbage.say("GET / HTTP/1.1\r\nhost: h\r\n\r\n").await;
    garbage.end().await;
    until("it is counted", || endpoint.counts.tls_failures() == 1).await;

    let mut slow = Client::connect(endpoint.address()).await;
    slow.say([0x16, 0x03]).await;
    let (took, _) = slow.end().await;
    assert!(took < TEST_TIMEOUT / 2, "{took:?}");
    until("it is counted", || endpoint.counts.tls_failures() == 2).await;
    endpoint.close().await;
}

#[tokio::test]
async fn a_connection_that_is_silent_after_the_handshake_is_closed_whatever_the_version() {
    let directory = Directory::new();
    let files = certify(&directory, "one");
    let tls = load(&files).unwrap();
    // Long enough for a handshake on a busy machine.
    let endpoint = endpoint(&tls, &Timeouts { head: Duration::from_secs(2), ..timeouts() });
    for (before, protocols) in (0..).zip([&[][..], &[&b"http/1.1"[..]]]) {
        let mut silent =
            Client::on(connect(&endpoint, &files.certificate, protocols).await.unwrap());
        let (took, _) = silent.end().await;
        assert!(took < TEST_TIMEOUT / 2, "{took:?} for {protocols:?}");
        until("it is counted", || endpoint.counts.timeouts() == before + 1).await;
    }
    endpoint.close().await;
}
