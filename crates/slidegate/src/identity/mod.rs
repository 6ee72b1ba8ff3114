//! Whose spending is counted.

mod network;

use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::str::FromStr;

use arrayvec::ArrayString;
use ipnet::IpNet;
use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;

pub use self::network::{Network, PrefixError, Prefixes};

/// The most bytes of an identity's text, kind and colon included.
pub(crate) const MAX_IDENTITY_LEN: usize = 63;

/// The longest kind beside which a colon, the mark and a digest still fit.
const MAX_DIGESTED_KIND: usize = MAX_IDENTITY_LEN - ":~".len() - 32;

/// Whose spending is counted, as a short text: `ip:203.0.113.7`, `user:42`, `everyone`.
///
/// The text is safe to put into a key, a log line or a page: it is at most 63 bytes of visible
/// ASCII without spaces and braces. Secrets are digests from the start; a value that is too long
/// or has other characters is replaced by its digest, marked with `~`. It never allocates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(ArrayString<MAX_IDENTITY_LEN>);

impl Identity {
    /// An identity of any kind, for what only the application knows: a tenant, a team, a device.
    ///
    /// The kind is a word of lower-case letters, digits and hyphens. `user`, `customer`, `api-key`,
    /// `authorization` and `ip` mean what the constructors of these names make; any other text that
    /// is no such word becomes part of a digest under the kind `other`.
    ///
    /// ```
    /// use slidegate::Identity;
    ///
    /// assert_eq!(Identity::new("tenant", "acme").to_string(), "tenant:acme");
    /// assert_eq!(Identity::new("user", "42"), Identity::user("42"));
    /// ```
    pub fn new(kind: &str, value: &str) -> Self {
        let is_word = |kind: &str| {
            kind.starts_with(|first: char| first.is_ascii_lowercase())
                && kind.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        };
        match kind {
            "api-key" => Self::api_key(value.as_bytes()),
            "authorization" => Self::authorization(value.as_bytes()),
            "ip" => match value.parse() {
                Ok(address) => Self::ip(address, Prefixes::default()),
                Err(_) => Self::of(format_args!("ip:~{:032x}", digest("ip", value.as_bytes()))),
            },
            "everyone" | "anonymous" | "header" | "other" => Self::other(kind, value),
            kind if is_word(kind) && kind.len() <= MAX_DIGESTED_KIND => {
                Self::text(kind, value.as_bytes())
            }
            kind => Self::other(kind, value),
        }
    }

    fn other(kind: &str, value: &str) -> Self {
        Self::of(format_args!("other:~{:032x}", digest(kind, value.as_bytes())))
    }

    /// A user that the application has authenticated.
    pub fn user(id: &str) -> Self {
        Self::user_bytes(id.as_bytes())
    }

    /// A user whose id comes from a header, and may be no UTF-8.
    pub(crate) fn user_bytes(id: &[u8]) -> Self {
        Self::text("user", id)
    }

    /// A customer, whose API keys and users spend from one account.
    pub fn customer(name: &str) -> Self {
        Self::text("customer", name.as_bytes())
    }

    /// The bearer of an API key, which is digested. White space around the key is not part of it.
    pub fn api_key(key: &[u8]) -> Self {
        Self::secret("api-key", key.trim_ascii())
    }

    /// The bearer of an `Authorization` header, which is digested. Neither the case of the scheme
    /// nor the white space around it and the credentials makes another identity.
    ///
    /// ```
    /// use slidegate::Identity;
    ///
    /// let bearer = Identity::authorization(b"Bearer token");
    /// assert_eq!(Identity::authorization(b"bearer  token "), bearer);
    /// assert_ne!(Identity::authorization(b"Bearer Token"), bearer);
    /// ```
    pub fn authorization(value: &[u8]) -> Self {
        Self::credentials("authorization", value)
    }

    /// A client address, or its network if the prefixes are shorter than addresses.
    pub fn ip(address: IpAddr, prefixes: Prefixes) -> Self {
        Self::of_network(prefixes.network(address))
    }

    fn of_network(network: IpNet) -> Self {
        match network.addr() {
            _ if network.prefix_len() < network.max_prefix_len() => {
                Self::of(format_args!("ip:{network}"))
            }
            IpAddr::V6(address) => Self::of(format_args!("ip:{address}")),
            // Nearly every request has one, and `Display` takes seven times as long for it.
            IpAddr::V4(address) => {
                let mut text = ArrayString::new();
                text.push_str("ip");
                for (octet, before) in address.octets().into_iter().zip([':', '.', '.', '.']) {
                    text.push(before);
                    text.push_str(itoa::Buffer::new().format(octet));
                }
                Self(text)
            }
        }
    }

    /// The value of a header, such as a tenant's name. Headers that carry secrets are digested.
    /// White space around the value is not part of it.
    pub fn header(name: &http::HeaderName, value: &[u8]) -> Self {
        let value = value.trim_ascii();
        match name.as_str() {
            "x-api-key" => Self::api_key(value),
            "authorization" => Self::authorization(value),
            "proxy-authorization" => Self::credentials("proxy-authorization", value),
            "cookie" => Self::secret("cookie", value),
            // A header of this name must not pass for the real thing.
            taken @ ("user" | "customer" | "ip" | "api-key" | "everyone" | "anonymous"
            | "header" | "other") => {
                Self::of(format_args!("header:~{:032x}", digest(taken, value)))
            }
            name => Self::text(name, value),
        }
    }

    /// The values of a descriptor's keys, together. Envoy's `remote_address` is a client's address,
    /// `user`, `customer`, `api_key` and `authorization` are what they are of a request, and any other key
    /// is like a header of that name; several are of the kind `a+b`, with the value `x,y`.
    ///
    /// ```
    /// use slidegate::Identity;
    ///
    /// let address = ("remote_address", "203.0.113.7");
    /// assert_eq!(Identity::descriptor([address]).to_string(), "ip:203.0.113.7");
    /// let both = Identity::descriptor([address, ("path", "/login")]);
    /// assert_eq!(both.to_string(), "remote_address+path:203.0.113.7,/login");
    /// ```
    pub fn descriptor<'a>(entries: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let part = |(key, value)| (key, Self::entry(key, value));
        let parts: SmallVec<[(&str, Self); 2]> = entries.into_iter().map(part).collect();
        if let [(_, only)] = parts[..] {
            return only;
        }
        let keys: Vec<&str> = parts.iter().map(|(key, _)| *key).collect();
        let values: Vec<&str> = parts.iter().map(|(_, part)| part.value()).collect();
        // No value has a space, so no two lists of values are the same text.
        let has_comma = values.iter().any(|value| value.contains(','));
        Self::of_key(&keys.join("+"), &values.join(if has_comma { " " } else { "," }))
    }

    fn entry(key: &str, value: &str) -> Self {
        match (&*key.replace('_', "-"), value.parse()) {
            ("remote-address", Ok(address)) => Self::ip(address, Prefixes::default()),
            (kind @ ("user" | "customer" | "api-key" | "authorization"), _) => {
                Self::new(kind, value)
            }
            (secret @ ("x-api-key" | "proxy-authorization"), _) => Self::of_key(secret, value),
            _ => Self::of_key(key, value),
        }
    }

    /// Whether a descriptor's key names an API key.
    pub(crate) fn is_api_key_entry(key: &str) -> bool {
        matches!(&*key.replace('_', "-"), "api-key" | "x-api-key")
    }

    fn of_key(key: &str, value: &str) -> Self {
        match key.parse() {
            Ok(name) => Self::header(&name, value.as_bytes()),
            Err(_) => Self::other(key, value),
        }
    }

    /// Whether a text has the form of the digest that stands for a secret in an identity.
    pub fn is_digest(text: &str) -> bool {
        text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    }

    /// The bearer of an API key of which only a digest is known.
    pub(crate) fn key_digest(digest: u128) -> Self {
        Self::of(format_args!("api-key:{digest:032x}"))
    }

    /// All requests together.
    pub fn everyone() -> Self {
        Self::of(format_args!("everyone"))
    }

    /// All requests that have no other identity, together.
    pub fn anonymous() -> Self {
        Self::of(format_args!("anonymous"))
    }

    /// What the identity is: `ip`, `user`, a header's name.
    pub fn kind(&self) -> &str {
        self.as_str().split_once(':').map_or(self.as_str(), |(kind, _)| kind)
    }

    /// Who it is; empty for `everyone` and `anonymous`.
    pub fn value(&self) -> &str {
        self.as_str().split_once(':').map_or("", |(_, value)| value)
    }

    /// The whole text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The network of an identity that is a client's address or network.
    pub(crate) fn network(&self) -> Option<IpNet> {
        let ("ip", value) = (self.kind(), self.value()) else { return None };
        value.parse().ok().map(|Network(network)| network)
    }

    /// The identity as requests have it, if it is an address that was written in another way.
    pub(crate) fn canonical(self) -> Self {
        self.network().map_or(self, Self::of_network)
    }

    fn text(kind: &str, value: &[u8]) -> Self {
        let plain = kind.len() + 1 + value.len() <= MAX_IDENTITY_LEN && is_plain(value);
        match std::str::from_utf8(value) {
            Ok(value) if plain => Self::of(format_args!("{kind}:{value}")),
            _ => {
                let digest = digest(kind, value);
                // Only a header's name can be too long; the digest covers it as well.
                let kind = if kind.len() > MAX_DIGESTED_KIND { "header" } else { kind };
                Self::of(format_args!("{kind}:~{digest:032x}"))
            }
        }
    }

    fn secret(kind: &str, value: &[u8]) -> Self {
        Self::of(format_args!("{kind}:{:032x}", digest(kind, value)))
    }

    /// The bearer of credentials as RFC 9110 section 11.4 has them: a scheme, white space and the
    /// rest. The scheme is brought to one case (`Bearer`) and the white space to one space; what has
    /// no scheme is digested as it is.
    fn credentials(kind: &str, value: &[u8]) -> Self {
        let value = value.trim_ascii();
        let Some(end) = value.iter().position(u8::is_ascii_whitespace) else {
            return Self::secret(kind, value);
        };
        let (scheme, rest) = value.split_at(end);
        let mut hash = begin_digest(kind).chain_update([scheme[0].to_ascii_uppercase()]);
        scheme[1..].iter().for_each(|byte| hash.update([byte.to_ascii_lowercase()]));
        let hash = hash.chain_update(b" ").chain_update(rest.trim_ascii_start());
        Self::of(format_args!("{kind}:{:032x}", half(hash)))
    }

    fn of(text: fmt::Arguments<'_>) -> Self {
        let mut buffer = ArrayString::new();
        buffer.write_fmt(text).expect("every form of an identity fits its buffer");
        Self(buffer)
    }
}

/// The first half of the plain SHA-256 digest of a value.
pub(crate) fn sha256(value: &[u8]) -> u128 {
    half(Sha256::new().chain_update(value))
}

pub(crate) fn sha256_hex(value: &[u8]) -> String {
    let digest = Sha256::digest(value);
    let (first, last) = digest.split_at(16);
    let half = |half: &[u8]| u128::from_be_bytes(*half.first_chunk().expect("16 of 32 bytes"));
    format!("{:032x}{:032x}", half(first), half(last))
}

/// Digests a value together with its kind, so that equal values of two kinds differ.
pub(crate) fn digest(kind: &str, value: &[u8]) -> u128 {
    half(begin_digest(kind).chain_update(value))
}

fn begin_digest(kind: &str) -> Sha256 {
    Sha256::new().chain_update(b"slidegate\0").chain_update(kind).chain_update(b"\0")
}

/// Half of a SHA-256 digest: enough that no two values meet, and no value can be read back.
fn half(hash: Sha256) -> u128 {
    u128::from_be_bytes(*hash.finalize().first_chunk().expect("a digest has 32 bytes"))
}

/// Visible ASCII without braces, which would choose a Redis Cluster slot, and not the mark of a
/// digest.
fn is_plain(value: &[u8]) -> bool {
    !value.is_empty()
        && value[0] != b'~'
        && value.iter().all(|b| b.is_ascii_graphic() && !matches!(b, b'{' | b'}'))
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({self})")
    }
}

/// Reads the text that [`Identity::as_str`] gives, as an operator copies it from a log.
impl FromStr for Identity {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let known = |kind: &str| {
            kind.parse::<http::HeaderName>().is_ok_and(|lower_case| lower_case.as_str() == kind)
        };
        let whole = match text.split_once(':') {
            None => matches!(text, "everyone" | "anonymous"),
            Some((kind, value)) => known(kind) && !value.is_empty(),
        };
        let plain = text.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'{' | b'}'));
        match ArrayString::from(text) {
            Ok(text) if whole && plain => Ok(Self(text)),
            _ => {
                let expected = "an identity: expected kind:value as logs show it, such as user:42 \
                                or ip:203.0.113.7, or everyone, or anonymous";
                Err(ParseError::new(text, expected))
            }
        }
    }
}

/// A text that is not what it should be, such as an identity or a network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {expected}")]
pub struct ParseError {
    text: String,
    expected: String,
}

impl ParseError {
    pub(crate) fn new(text: &str, expected: impl Into<String>) -> Self {
        Self { text: text.to_owned(), expected: expected.into() }
    }

    /// Asks whether this was meant, if there is a guess.
    pub(crate) fn meant(mut self, guess: Option<&str>) -> Self {
        if let Some(guess) = guess {
            self.expected += &format!("; did you mean {guess:?}?");
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderName;

    use super::*;

    #[test]
    fn an_identity_is_readable_where_it_can_be() {
        let ip = |text: &str| Identity::ip(text.parse().unwrap(), Prefixes::default()).to_string();
        assert_eq!(ip("203.0.113.7"), "ip:203.0.113.7");
        assert_eq!(ip("::ffff:203.0.113.7"), "ip:203.0.113.7");
        assert_eq!(ip("2001:db8:1:2:3:4:5:6"), "ip:2001:db8:1:2::/64");
        assert_eq!(Identity::user("42").to_string(), "user:42");
        assert_eq!(Identity::user("a:b").value(), "a:b");
        let tenant = HeaderName::from_static("x-tenant");
        assert_eq!(Identity::header(&tenant, b"acme").to_string(), "x-tenant:acme");
        assert_eq!(Identity::everyone().kind(), "everyone");
        assert_eq!(Identity::everyone().value(), "");
    }

    #[test]
    fn an_identity_shows_no_secret() {
        for name in ["x-api-key", "authorization", "cookie", "proxy-authorization"] {
            let text = Identity::header(&HeaderName::from_static(name), b"hunter2").to_string();
            assert!(!text.contains("hunter2"), "{text}");
        }
        assert_ne!(Identity::api_key(b"a"), Identity::api_key(b"b"));
        assert_ne!(Identity::api_key(b"a").value(), Identity::authorization(b"a").value());
    }

    #[test]
    fn one_credential_is_one_identity_however_it_is_written() {
        let canonical = Identity::authorization(b"Bearer t0ken");
        for other in [
            "bearer t0ken",
            "BEARER t0ken",
            "bEaReR t0ken",
            "Bearer  t0ken",
            "Bearer\tt0ken",
            "Bearer \t t0ken",
            " Bearer t0ken",
            "Bearer t0ken ",
            "\tbearer    t0ken \t",
        ] {
            assert_eq!(Identity::authorization(other.as_bytes()), canonical, "{other:?}");
            let header = Identity::header(&http::header::AUTHORIZATION, other.as_bytes());
            assert_eq!(header, canonical, "{other:?}");
        }
        for different in ["Bearer T0KEN", "Basic t0ken", "Bearert0ken", "Bearer t0 ken", "Bearer"] {
            assert_ne!(Identity::authorization(different.as_bytes()), canonical, "{different}");
        }
        // What has no scheme is all credentials.
        assert_ne!(Identity::authorization(b"token"), Identity::authorization(b"Token"));
        let long = |first: char| format!("{first}{} t", "x".repeat(1000));
        assert_eq!(
            Identity::authorization(long('X').as_bytes()),
            Identity::authorization(long('x').as_bytes())
        );
        assert_eq!(Identity::api_key(b" k\t"), Identity::api_key(b"k"));
        assert_ne!(Identity::api_key(b"k k"), Identity::api_key(b"kk"));
        let tenant = HeaderName::from_static("x-tenant");
        assert_eq!(Identity::header(&tenant, b"acme "), Identity::header(&tenant, b"acme"));
    }

    /// Operators have these in files and in Redis.
    #[test]
    fn digests_of_the_usual_credentials_are_what_they_were() {
        let plain = |text: &[u8]| Identity::secret("authorization", text);
        for usual in [&b"Bearer t0ken"[..], b"Basic dXNlcjpwYXNz", b"token-without-a-scheme"] {
            assert_eq!(Identity::authorization(usual), plain(usual));
        }
    }

    #[test]
    fn an_application_names_its_own_kinds_and_no_text_passes_for_another() {
        assert_eq!(Identity::new("tenant", "acme").as_str(), "tenant:acme");
        assert_eq!(Identity::new("api-key", "k"), Identity::api_key(b"k"));
        assert_eq!(Identity::new("authorization", "B t"), Identity::authorization(b"B t"));
        assert_eq!(Identity::new("ip", "203.0.113.7").as_str(), "ip:203.0.113.7");
        assert!(Identity::new("tenant", "two words").as_str().starts_with("tenant:~"));
        let odd = ["", "Tenant", "a b", "a:b", "{a}", "everyone", "header", "ключ", "1st"];
        let odd = odd.map(|kind| Identity::new(kind, "acme"));
        for (i, identity) in odd.iter().enumerate() {
            assert_eq!(identity.kind(), "other", "{identity}");
            assert!(!odd[..i].contains(identity));
        }
        assert_eq!(Identity::new(&"k".repeat(100), "v").kind(), "other");
        assert_eq!(Identity::new("ip", "everybody").as_str().len(), "ip:~".len() + 32);
    }

    #[test]
    fn unruly_values_are_digested_and_stay_apart() {
        let long = "x".repeat(10_000);
        let unruly = [long.as_str(), "", "a b", "line\nbreak", "{slot}", "Ünal", "~mark"];
        let texts: Vec<String> = unruly.map(|id| Identity::user(id).to_string()).to_vec();
        for (i, text) in texts.iter().enumerate() {
            assert!(text.starts_with("user:~") && text.len() == 38, "{text}");
            assert!(!texts[..i].contains(text));
        }
        let long_name: HeaderName = "n".repeat(200).parse().unwrap();
        let other_name: HeaderName = "m".repeat(200).parse().unwrap();
        let identity = Identity::header(&long_name, b"v");
        assert!(identity.as_str().starts_with("header:~"));
        assert_ne!(identity, Identity::header(&other_name, b"v"));
    }

    #[test]
    fn a_header_cannot_pass_for_another_kind() {
        for (name, value, real) in [
            ("ip", "203.0.113.7", "ip:203.0.113.7"),
            ("user", "42", "user:42"),
            ("everyone", "", "everyone"),
        ] {
            let identity = Identity::header(&HeaderName::from_static(name), value.as_bytes());
            assert_ne!(identity.as_str(), real);
        }
    }

    #[test]
    fn texts_of_identities_read_back() {
        for identity in [
            Identity::user("42"),
            Identity::everyone(),
            Identity::api_key(b"secret"),
            Identity::user("with spaces"),
            Identity::ip("2001:db8::1".parse().unwrap(), Prefixes::default()),
        ] {
            assert_eq!(identity.as_str().parse(), Ok(identity));
        }
        for text in ["", "nobody", "user:", "User:42", "two words:x", "user:{x}", &"k:v".repeat(30)]
        {
            let error = text.parse::<Identity>().unwrap_err().to_string();
            assert!(error.contains("expected kind:value"), "{error}");
        }
    }
}
