//! An issuer of tokens, as an operator describes it.

use std::path::PathBuf;

use http::Uri;
use rustls::RootCertStore;

use super::algorithm::TokenAlgorithm;

/// An issuer of tokens: where its keys are, and which claims of its tokens count.
///
/// A claim is named by its name (`sub`, `https://example.com/org`), or by a path with dots into
/// nested objects (`app_metadata.org_id`). A claim that has the whole name counts first.
///
/// ```
/// use slidegate_customers::{InvalidTokens, IssuerConfig, JwksLocation, TokenAlgorithm};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let issuer = IssuerConfig {
///     issuer: "https://auth.example.com/".to_owned(),
///     jwks: JwksLocation::Url("https://auth.example.com/.well-known/jwks.json".to_owned()),
///     audience: vec!["api".to_owned()],
///     algorithms: vec!["RS256".parse::<TokenAlgorithm>()?],
///     user: Some("sub".to_owned()),
///     customer: Some("org_id".to_owned()),
///     plan: None,
///     invalid: InvalidTokens::Refuse,
///     authorities: rustls::RootCertStore::empty(),
/// };
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct IssuerConfig {
    /// Exactly what its tokens have as `iss`.
    pub issuer: String,
    /// Where its public keys are.
    pub jwks: JwksLocation,
    /// A token is for one of these; at least one.
    pub audience: Vec<String>,
    /// A token is signed by one of these; at least one.
    pub algorithms: Vec<TokenAlgorithm>,
    /// The claim that has the user.
    pub user: Option<String>,
    /// The claim that has the customer.
    pub customer: Option<String>,
    /// The claim that has the name of the plan.
    pub plan: Option<String>,
    /// What becomes of a token of this issuer that is not valid.
    pub invalid: InvalidTokens,
    /// Authorities to trust beside the public ones, when keys are fetched over HTTPS.
    pub authorities: RootCertStore,
}

/// Where a set of public keys is (RFC 7517).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JwksLocation {
    /// At an `http` or `https` URL.
    Url(String),
    /// In a file, which is read again when it changes.
    File(PathBuf),
}

/// What becomes of a token that is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InvalidTokens {
    /// It counts as none, and the policy's next source of identities counts.
    #[default]
    Ignore,
    /// The request is refused.
    Refuse,
}

/// What is wrong with the description of an issuer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenConfigError {
    /// There is an issuer without a name.
    #[error("issuer is empty: it is what tokens have as `iss`")]
    NoIssuer,
    /// Two have the same name.
    #[error("issuer `{0}` is there twice")]
    Twice(String),
    /// Tokens for any other service of the issuer would count.
    #[error("issuer `{0}` needs an audience: without it, its tokens for other services count too")]
    NoAudience(String),
    /// No signature would count.
    #[error("issuer `{0}` needs algorithms, such as RS256")]
    NoAlgorithms(String),
    /// Its tokens would say nothing.
    #[error("issuer `{0}` needs the name of a claim for user, customer or plan")]
    NoClaims(String),
    /// A claim, or an audience, without a name.
    #[error("issuer `{issuer}`: {key} is empty")]
    Empty {
        /// Which issuer.
        issuer: String,
        /// Which of its keys.
        key: &'static str,
    },
    /// Keys cannot be there.
    #[error("issuer `{issuer}`: jwks {reason}")]
    Jwks {
        /// Which issuer.
        issuer: String,
        /// What is wrong with the location.
        reason: String,
    },
}

impl IssuerConfig {
    pub(super) fn check(&self) -> Result<(), TokenConfigError> {
        let issuer = || self.issuer.clone();
        if self.issuer.is_empty() {
            return Err(TokenConfigError::NoIssuer);
        }
        if self.audience.is_empty() {
            return Err(TokenConfigError::NoAudience(issuer()));
        }
        if self.algorithms.is_empty() {
            return Err(TokenConfigError::NoAlgorithms(issuer()));
        }
        let claims = [("user", &self.user), ("customer", &self.customer), ("plan", &self.plan)];
        if claims.iter().all(|(_, claim)| claim.is_none()) {
            return Err(TokenConfigError::NoClaims(issuer()));
        }
        let empty_claim =
            claims.iter().find(|(_, claim)| claim.as_deref() == Some("")).map(|(key, _)| *key);
        let empty_audience = self.audience.iter().any(String::is_empty).then_some("audience");
        match empty_claim.or(empty_audience) {
            Some(key) => Err(TokenConfigError::Empty { issuer: issuer(), key }),
            None => Ok(()),
        }
    }

    /// The location as something that can be fetched.
    pub(super) fn jwks_uri(&self, url: &str) -> Result<Uri, TokenConfigError> {
        let fail = |reason: String| TokenConfigError::Jwks { issuer: self.issuer.clone(), reason };
        // What cannot be read may still have a password in it, and is not repeated.
        let parsed = url::Url::parse(url)
            .map_err(|error| fail(format!("is no URL: {error}; use https://HOST/PATH")))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(fail(format!("has the scheme `{}`: use https", parsed.scheme())));
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(fail("has a user or password, which cannot be sent".to_owned()));
        }
        parsed.as_str().parse().map_err(|error| fail(format!("`{parsed}`: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> IssuerConfig {
        IssuerConfig {
            issuer: "https://auth.example.com/".to_owned(),
            jwks: JwksLocation::Url("https://auth.example.com/jwks".to_owned()),
            audience: vec!["api".to_owned()],
            algorithms: vec![TokenAlgorithm::Rs256],
            user: Some("sub".to_owned()),
            customer: None,
            plan: None,
            invalid: InvalidTokens::Ignore,
            authorities: RootCertStore::empty(),
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let check = |change: fn(&mut IssuerConfig), expected: &str| {
            let mut config = config();
            change(&mut config);
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        };
        assert_eq!(config().check(), Ok(()));
        check(|config| config.issuer.clear(), "issuer is empty");
        check(|config| config.audience.clear(), "needs an audience");
        check(|config| config.audience.push(String::new()), "audience is empty");
        check(|config| config.algorithms.clear(), "needs algorithms");
        check(|config| config.user = None, "user, customer or plan");
        check(|config| config.plan = Some(String::new()), "plan is empty");
    }

    #[test]
    fn a_location_is_http_or_https_without_a_password() {
        for (url, expected) in [
            ("https://auth.example.com/jwks?v=1", None),
            ("http://127.0.0.1:8080/jwks", None),
            ("auth.example.com/jwks", Some("is no URL")),
            ("file:///etc/jwks.json", Some("scheme `file`")),
            ("https://me:hunter2@auth.example.com/", Some("user or password")),
        ] {
            let error = config().jwks_uri(url).err().map(|error| error.to_string());
            match expected {
                None => assert_eq!(error, None, "{url}"),
                Some(expected) => {
                    let error = error.expect(url);
                    assert!(error.contains(expected) && !error.contains("hunter2"), "{error}");
                }
            }
        }
    }
}
