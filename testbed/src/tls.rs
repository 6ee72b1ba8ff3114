//! Certificates for a server and a client, good for one test.

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use crate::directory::Directory;
use crate::process::output;

const SUBJECT_NAMES: &str = "subjectAltName=IP:127.0.0.1,DNS:localhost";

/// The PEM files of a certificate authority of one's own and of the two certificates it signed.
///
/// The certificates are for `127.0.0.1` and `localhost`, and valid for a day of real time.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The certificate that signed the others.
    pub ca: PathBuf,
    /// The server's certificate.
    pub server: PathBuf,
    /// The key of the server's certificate.
    pub server_key: PathBuf,
    /// A client's certificate.
    pub client: PathBuf,
    /// The key of the client's certificate.
    pub client_key: PathBuf,
    /// Where the files are, if the directory belongs to these files.
    _directory: Option<Arc<Directory>>,
}

impl Certificates {
    /// An authority of its own, in files that are gone with the last clone.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it runs a program")]
    pub fn new() -> Self {
        let directory = Arc::new(Directory::new());
        Self { _directory: Some(Arc::clone(&directory)), ..Self::generate(&directory) }
    }

    pub(crate) fn generate(directory: &Directory) -> Self {
        let mut request = new_key(directory, "ca");
        openssl(directory, request.args(["-x509", "-days", "1", "-out", "ca.crt"]));
        directory.write("names", SUBJECT_NAMES);
        for name in ["server", "client"] {
            sign(directory, name);
        }
        Self {
            ca: directory.file("ca.crt"),
            server: directory.file("server.crt"),
            server_key: directory.file("server.key"),
            client: directory.file("client.crt"),
            client_key: directory.file("client.key"),
            _directory: None,
        }
    }
}

fn sign(directory: &Directory, name: &str) {
    let csr = format!("{name}.csr");
    openssl(directory, new_key(directory, name).args(["-out", &csr]));
    let mut sign = Command::new("openssl");
    sign.args(["x509", "-req", "-days", "1", "-CA", "ca.crt", "-CAkey", "ca.key"]);
    sign.args(["-CAcreateserial", "-extfile", "names", "-in", &csr]);
    openssl(directory, sign.args(["-out", &format!("{name}.crt")]));
}

/// A request for a certificate, together with its key. The curve is there for speed.
fn new_key(directory: &Directory, name: &str) -> Command {
    let mut request = Command::new("openssl");
    request.args(["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]);
    // Authorities differ in their names, as those of others do.
    let place = directory.path().file_name().expect("it has a name").display();
    request.args(["-nodes", "-subj", &format!("/CN={place} {name}")]);
    request.arg("-keyout").arg(directory.file(&format!("{name}.key")));
    request
}

fn openssl(directory: &Directory, command: &mut Command) {
    output(command.current_dir(directory.path()), "apt-get install openssl");
}
