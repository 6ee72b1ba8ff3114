//! Who sends a request: API keys from an operator's own systems, and verified tokens.
//!
//! A limiter counts by customer, and a customer has several keys, new ones after each rotation, or users
//! with tokens of an identity provider. This crate turns the credentials of a request into a
//! [`Bearer`](slidegate::Bearer), which [`Facts::bearer`](slidegate::Facts::bearer) takes.

// docs.rs builds with a nightly compiler, and labels what needs a feature.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod authorities;
mod customers;
mod fetch;
mod http_keys;
mod key;
mod key_table;
mod postgres;
mod status;
mod token;

pub use self::authorities::{Authorities, AuthoritiesError, authorities};
pub use self::customers::{Customers, KeySource, Keys, OnKeyError};
pub use self::http_keys::{HttpKeys, HttpKeysConfig, HttpKeysError, UrlTemplateError};
pub use self::key::{KeyAnswer, KnownKey};
pub use self::postgres::{KeySourceError, PostgresConfig, PostgresKeys, PostgresUrl};
pub use self::status::SourceStatus;
pub use self::token::{
    AlgorithmError, InvalidToken, InvalidTokens, IssuerConfig, JwksLocation, TokenAlgorithm,
    TokenAnswer, TokenClaims, TokenConfigError, Tokens, claim,
};
