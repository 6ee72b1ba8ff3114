//! Identities on the command line.

use std::io::Read;
use std::net::IpAddr;

use anyhow::{Context, bail};
use slidegate::policy::Network;
use slidegate::{Identity, Name};

use crate::identity_text::{IdentityTextError, from_text};

/// No key is half as long.
const MAX_SECRET_BYTES: u64 = 64 * 1024;

/// Reads an identity as logs show it, an address by itself, or a secret: `api-key:-` from standard
/// input, `api-key:@FILE` from a file. The secret is digested here and goes nowhere else. So is the
/// name of an API key, for it may be the key itself, by mistake; the server knows the names'
/// digests.
pub(super) fn read(text: &str) -> anyhow::Result<String> {
    match text.strip_prefix("api-key:") {
        Some(name)
            if name.parse::<Name>().is_ok() && !is_place(name) && from_text(text).is_err() =>
        {
            Ok(format!("api-key:~{}", Identity::api_key(name.as_bytes()).value()))
        }
        _ => identity(text).map(|identity| identity.to_string()),
    }
}

fn identity(text: &str) -> anyhow::Result<Identity> {
    if text.parse::<IpAddr>().is_ok() || text.parse::<Network>().is_ok() {
        return Ok(format!("ip:{text}").parse()?);
    }
    match text.split_once(':') {
        Some(("api-key", place)) if is_place(place) => {
            Ok(Identity::api_key(secret(place)?.as_bytes()))
        }
        Some(("authorization", place)) if is_place(place) => {
            Ok(Identity::authorization(secret(place)?.as_bytes()))
        }
        // As the application writes it, however long.
        Some((kind @ ("user" | "customer"), id)) if !id.is_empty() => {
            Ok(from_text(text).unwrap_or_else(|_| Identity::new(kind, id)))
        }
        _ => match from_text(text) {
            Ok(identity) => Ok(identity),
            // It may be a secret, so it is not repeated.
            Err(IdentityTextError::Secret) => bail!(
                "IDENTITY: expected the digest of the secret, as logs show it. Of the secret \
                 itself it is made by api-key:- , which reads it from standard input, or \
                 api-key:@FILE"
            ),
            Err(_) => bail!(
                "IDENTITY {text:?}: expected kind:value as logs show it, such as ip:203.0.113.7 or \
                 user:42, or everyone, or anonymous"
            ),
        },
    }
}

fn is_place(text: &str) -> bool {
    text == "-" || text.starts_with('@')
}

fn secret(place: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    match place.strip_prefix('@') {
        Some(path) => {
            let file = std::fs::File::open(path).with_context(|| format!("cannot read {path}"))?;
            file.take(MAX_SECRET_BYTES).read_to_string(&mut text)?;
        }
        None => drop(std::io::stdin().take(MAX_SECRET_BYTES).read_to_string(&mut text)?),
    }
    let text = text.trim_end_matches(['\r', '\n']);
    anyhow::ensure!(!text.is_empty(), "IDENTITY: the secret is empty");
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_read_as_logs_show_them_and_as_people_write_them() {
        for (text, identity) in [
            ("ip:203.0.113.7", "ip:203.0.113.7"),
            ("203.0.113.7", "ip:203.0.113.7"),
            ("2001:db8::/64", "ip:2001:db8::/64"),
            ("user:42", "user:42"),
            ("everyone", "everyone"),
            ("x-tenant:acme", "x-tenant:acme"),
        ] {
            assert_eq!(read(text).unwrap(), identity);
        }
        assert_eq!(read("user:Ann Other").unwrap(), Identity::user("Ann Other").as_str());
        assert_eq!(read("user:~x").unwrap(), "user:~x", "a digest from a log");
        let digest = Identity::api_key(b"k");
        assert_eq!(
            read(digest.as_str()).unwrap(),
            digest.as_str(),
            "as logs show a key without a name"
        );
        for text in ["", "ann", "ip:nowhere", "user:", "api-key:"] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_secret_is_read_from_a_file_and_never_repeated() {
        let path = std::env::temp_dir().join(format!("slidegate-key-{}", std::process::id()));
        std::fs::write(&path, "hunter2\n").unwrap();
        let read_from = |kind: &str| read(&format!("{kind}:@{}", path.display())).unwrap();
        let digest = Identity::api_key(b"hunter2");
        assert_eq!(read_from("api-key"), digest.as_str());
        assert_eq!(read_from("authorization"), Identity::authorization(b"hunter2").as_str());
        let typed = read("api-key:hunter2").unwrap();
        assert_eq!(typed, format!("api-key:~{}", digest.value()), "it may be a name");
        std::fs::remove_file(&path).unwrap();
        let error = read("authorization:hunter2").unwrap_err().to_string();
        assert!(!error.contains("hunter2") && error.contains("api-key:-"), "{error}");
    }
}
