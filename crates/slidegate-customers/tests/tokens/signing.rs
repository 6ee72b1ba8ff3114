//! Keys, made by `openssl` once, and tokens signed with them.

use std::process::Command;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};
use slidegate_testbed::Directory;
use slidegate_testbed::program::run;

/// A private key, and its public part as it is published.
#[derive(Clone)]
pub(crate) struct SigningKey {
    pub(crate) id: Option<&'static str>,
    pub(crate) algorithm: Algorithm,
    private: EncodingKey,
    public: Value,
}

pub(crate) static RSA: LazyLock<SigningKey> = LazyLock::new(|| rsa("rsa").0);
pub(crate) static OTHER_RSA: LazyLock<SigningKey> = LazyLock::new(|| rsa("other-rsa").0);
/// With the public key as PEM, as its owner might publish it.
pub(crate) static RSA_WITH_PEM: LazyLock<(SigningKey, Vec<u8>)> = LazyLock::new(|| rsa("confused"));
pub(crate) static P256: LazyLock<SigningKey> =
    LazyLock::new(|| ec("p256", "P-256", Algorithm::ES256));
pub(crate) static OTHER_P256: LazyLock<SigningKey> =
    LazyLock::new(|| ec("other-p256", "P-256", Algorithm::ES256));
pub(crate) static P384: LazyLock<SigningKey> =
    LazyLock::new(|| ec("p384", "P-384", Algorithm::ES384));
pub(crate) static ED25519: LazyLock<SigningKey> = LazyLock::new(|| {
    let der = der(&openssl(&["genpkey", "-algorithm", "ED25519"]));
    SigningKey::new("ed25519", Algorithm::EdDSA, EncodingKey::from_ed_der(&der))
});

impl SigningKey {
    fn new(id: &'static str, algorithm: Algorithm, private: EncodingKey) -> Self {
        let public = Jwk::from_encoding_key(&private, algorithm).expect("a key of this kind");
        let mut public = serde_json::to_value(public).expect("a key is JSON");
        public["use"] = json!("sig");
        public["kid"] = json!(id);
        Self { id: Some(id), algorithm, private, public }
    }

    /// As it is published.
    pub(crate) fn jwk(&self) -> Value {
        self.public.clone()
    }

    /// The same key by another id.
    pub(crate) fn named(&self, id: &'static str) -> Self {
        let mut key = self.clone();
        key.id = Some(id);
        key.public["kid"] = json!(id);
        key
    }

    /// The same key without an id.
    pub(crate) fn unnamed(&self) -> Self {
        let mut key = self.clone();
        key.id = None;
        key.public.as_object_mut().expect("a key is an object").remove("kid");
        key
    }

    /// The same key for another algorithm, or for any that it fits.
    pub(crate) fn by(&self, algorithm: Algorithm) -> Self {
        let mut key = Self { algorithm, ..self.clone() };
        key.public.as_object_mut().expect("a key is an object").remove("alg");
        key
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let mut header = json!({ "alg": format!("{:?}", self.algorithm), "typ": "JWT" });
        if let Some(id) = self.id {
            header["kid"] = json!(id);
        }
        self.sign_with_header(&header, claims)
    }

    pub(crate) fn sign_with_header(&self, header: &Value, claims: &Value) -> String {
        let message = message(header, claims);
        let signature =
            jsonwebtoken::crypto::sign(message.as_bytes(), &self.private, self.algorithm);
        format!("{message}.{}", signature.expect("the key fits the algorithm"))
    }
}

/// Signs with a secret, as no issuer should.
pub(crate) fn sign_with_secret(header: &Value, claims: &Value, secret: &[u8]) -> String {
    let message = message(header, claims);
    let key = EncodingKey::from_secret(secret);
    let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &key, Algorithm::HS256);
    format!("{message}.{}", signature.expect("any secret will do"))
}

/// Header and payload, as they are signed.
pub(crate) fn message(header: &Value, claims: &Value) -> String {
    [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string())).join(".")
}

/// A set of these keys.
pub(crate) fn jwks<'a>(keys: impl IntoIterator<Item = &'a SigningKey>) -> String {
    let keys: Vec<Value> = keys.into_iter().map(SigningKey::jwk).collect();
    json!({ "keys": keys }).to_string()
}

fn rsa(id: &'static str) -> (SigningKey, Vec<u8>) {
    let directory = Directory::new();
    let file = directory.path().join("rsa.pem");
    let file = file.to_str().expect("a directory of UTF-8");
    openssl(&["genrsa", "-traditional", "-out", file, "2048"]);
    let der = der(&std::fs::read(file).expect("openssl wrote it"));
    let key = SigningKey::new(id, Algorithm::RS256, EncodingKey::from_rsa_der(&der));
    (key, openssl(&["rsa", "-in", file, "-pubout"]))
}

fn ec(id: &'static str, curve: &str, algorithm: Algorithm) -> SigningKey {
    let curve = format!("ec_paramgen_curve:{curve}");
    // By way of PEM: DER would be of an older form (SEC 1).
    let der = der(&openssl(&["genpkey", "-algorithm", "EC", "-pkeyopt", &curve]));
    SigningKey::new(id, algorithm, EncodingKey::from_ec_der(&der))
}

fn der(pem: &[u8]) -> Vec<u8> {
    let pem = std::str::from_utf8(pem).expect("PEM is text");
    let base64: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    STANDARD.decode(base64).expect("PEM is Base64")
}

fn openssl(arguments: &[&str]) -> Vec<u8> {
    let output = run(Command::new("openssl").args(arguments), "apt-get install openssl");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}
