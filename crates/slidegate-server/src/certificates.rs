//! Certificates of listeners, from files that an operator names.

use std::path::Path;

use anyhow::{Context, anyhow};
use slidegate_proxy::{Tls, TlsError, TlsPem};

use crate::config::TlsFiles;
use crate::file;

/// TLS with certificates from files.
#[derive(Debug, Clone)]
pub(crate) struct Certificates {
    files: TlsFiles,
    pub(crate) tls: Tls,
}

impl Certificates {
    /// Loads a certificate and its key. Errors name the file.
    pub(crate) fn load(files: &TlsFiles) -> anyhow::Result<Self> {
        let tls = Tls::new(&read(files)?).map_err(|error| explain(error, files))?;
        Ok(Self { files: files.clone(), tls })
    }

    /// Loads the files again. New connections have what is in them now; if anything is wrong with
    /// them, all stays as it was.
    pub(crate) fn reload(&self) -> anyhow::Result<()> {
        self.tls.replace(&read(&self.files)?).map_err(|error| explain(error, &self.files))
    }
}

fn read(files: &TlsFiles) -> anyhow::Result<TlsPem> {
    let pem = |path: &Path, what: &str| {
        let contents = file::read_pem(path).with_context(|| cannot_read(what, path))?;
        anyhow::Ok(contents.bytes)
    };
    Ok(TlsPem {
        certificate: pem(&files.certificate, "a certificate")?,
        key: pem(&files.key, "a private key")?,
        client_ca: files.client_ca.as_ref().map(|path| pem(path, "a certificate")).transpose()?,
    })
}

/// The error with the file that it is about.
fn explain(error: TlsError, files: &TlsFiles) -> anyhow::Error {
    let (certificate, key) = (&files.certificate, &files.key);
    let clients = files.client_ca.as_deref().unwrap_or(Path::new(""));
    let (what, path) = match &error {
        TlsError::Certificate(_) | TlsError::NoCertificate => {
            ("a certificate", certificate.as_path())
        }
        TlsError::Key(_) | TlsError::NoKey => ("a private key", key.as_path()),
        TlsError::ClientCa(_) | TlsError::ClientRoot(_) | TlsError::NoClientCa => {
            ("a certificate", clients)
        }
        TlsError::ClientVerifier(_) => ("certificates of clients", clients),
        TlsError::Mismatch(_) => {
            let (certificate, key) = (certificate.display(), key.display());
            let text = format!("cannot use the certificate in {certificate} with the key in {key}");
            return with_source(&error, text);
        }
        TlsError::Setup(_) => return error.into(),
    };
    match error {
        TlsError::NoCertificate | TlsError::NoKey | TlsError::NoClientCa => {
            anyhow!("{error} in {}", path.display())
        }
        error => with_source(&error, cannot_read(what, path)),
    }
}

/// This text in place of the error's own.
fn with_source(error: &TlsError, text: String) -> anyhow::Error {
    let source = std::error::Error::source(error).map(ToString::to_string);
    anyhow!(source.unwrap_or_default()).context(text)
}

fn cannot_read(what: &str, path: &Path) -> String {
    format!("cannot read {what} from {}", path.display())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use slidegate_testbed::Directory;

    use super::*;

    fn certify(directory: &Directory, name: &str) -> TlsFiles {
        let file = |extension| directory.path().join(name).with_extension(extension);
        let files = TlsFiles { certificate: file("crt"), key: file("key"), client_ca: None };
        let mut openssl = std::process::Command::new("openssl");
        openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
        openssl.args(["-nodes", "-days", "1", "-subj", "/CN=localhost"]);
        openssl.arg("-keyout").arg(&files.key).arg("-out").arg(&files.certificate);
        let output =
            openssl.output().expect("these tests need the openssl program: install openssl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        files
    }

    #[test]
    fn errors_of_certificates_name_the_file() {
        let directory = Directory::new();
        let (good, other) = (certify(&directory, "good"), certify(&directory, "other"));
        let empty = directory.path().join("empty");
        std::fs::write(&empty, "").unwrap();
        let broken = directory.path().join("broken");
        std::fs::write(&broken, "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n")
            .unwrap();
        let missing = directory.path().join("missing");

        let check = |certificate: &PathBuf, key: &PathBuf, named: &PathBuf, why: &str| {
            let (certificate, key) = (certificate.clone(), key.clone());
            let files = TlsFiles { certificate, key, client_ca: None };
            let error = format!("{:#}", Certificates::load(&files).unwrap_err());
            assert!(error.contains(named.to_str().unwrap()), "{error}");
            assert!(error.contains(why), "{error}");
        };
        check(&missing, &good.key, &missing, "No such file");
        check(&good.certificate, &missing, &missing, "No such file");
        check(&empty, &good.key, &empty, "there is no certificate in");
        check(&good.certificate, &empty, &empty, "there is no private key in");
        check(
            &good.certificate,
            &good.certificate,
            &good.certificate,
            "there is no private key in",
        );
        check(&broken, &good.key, &broken, "cannot read a certificate");
        check(&good.certificate, &other.key, &other.key, "cannot use the certificate in");
        let error = Certificates::load(&TlsFiles { client_ca: Some(good.key.clone()), ..good });
        let error = format!("{:#}", error.unwrap_err());
        assert!(
            error.contains("there is no certificate in") && error.contains("good.key"),
            "{error}"
        );
    }
}
