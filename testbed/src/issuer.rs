//! An issuer of tokens.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::directory::Directory;
use crate::process::output;

const INSTALL: &str = "apt-get install openssl";

/// Signs tokens by RS256 with keys of its own, which the program `openssl` makes and uses: no code of
/// Slidegate is part of it.
#[derive(Debug)]
pub struct TokenIssuer {
    directory: Directory,
    kid: String,
}

impl TokenIssuer {
    /// An issuer with one key of this id.
    #[must_use]
    pub fn new(kid: &str) -> Self {
        let directory = Directory::new();
        let mut key = Command::new("openssl");
        key.args(["genrsa", "-out", "issuer.key", "2048"]).current_dir(directory.path());
        output(&mut key, INSTALL);
        Self { directory, kid: kid.to_owned() }
    }

    /// Its public key, as a JSON Web Key.
    #[must_use]
    pub fn key(&self) -> Value {
        let mut modulus = Command::new("openssl");
        modulus.args(["rsa", "-in", "issuer.key", "-noout", "-modulus"]);
        let stdout = output(modulus.current_dir(self.directory.path()), INSTALL).stdout;
        let text = String::from_utf8_lossy(&stdout);
        let hex = text.trim().strip_prefix("Modulus=").expect("openssl names the modulus");
        let bytes: Vec<u8> = (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("hexadecimal digits"))
            .collect();
        json!({
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self.kid,
            "n": URL_SAFE_NO_PAD.encode(bytes), "e": "AQAB",
        })
    }

    /// A key set with the public keys of these issuers.
    #[must_use]
    pub fn key_set(issuers: &[&Self]) -> String {
        let keys: Vec<Value> = issuers.iter().map(|issuer| issuer.key()).collect();
        json!({ "keys": keys }).to_string()
    }

    /// A file with its key set.
    #[must_use]
    pub fn key_file(&self) -> PathBuf {
        self.directory.write("jwks.json", &Self::key_set(&[self]))
    }

    /// A signed token with these claims.
    #[must_use]
    pub fn token(&self, claims: &Value) -> String {
        let header = json!({ "alg": "RS256", "typ": "JWT", "kid": self.kid });
        let encode = |json: &Value| URL_SAFE_NO_PAD.encode(json.to_string());
        let mut token = format!("{}.{}", encode(&header), encode(claims));
        let signed = self.directory.write("signed", &token);
        let mut sign = Command::new("openssl");
        sign.args(["dgst", "-sha256", "-sign", "issuer.key", "-out", "signature"]);
        output(sign.arg(signed).current_dir(self.directory.path()), INSTALL);
        let signature =
            std::fs::read(self.directory.file("signature")).expect("openssl has written it");
        let _ = write!(token, ".{}", URL_SAFE_NO_PAD.encode(signature));
        token
    }
}
