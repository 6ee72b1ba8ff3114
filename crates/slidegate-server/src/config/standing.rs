//! `[standing]`: the path at which the gateway tells callers where they stand.

use slidegate::Quota;
use slidegate::limit::Quotas;

use crate::config::reader::Value;

/// The path at which the gateway tells callers where they stand, and how often one address may ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StandingConfig {
    pub(crate) path: String,
    pub(crate) quotas: Quotas,
}

const DEFAULT_PATH: &str = "/rate-limits";
/// Enough for a person and a status bar; a program finds the same in the headers of every response.
const DEFAULT_QUOTA: Quota = Quota::per_minute(30);

impl StandingConfig {
    /// Reads the section, if it is there.
    pub(super) fn read(root: &Value<'_>) -> Option<Self> {
        let table = root.key("standing").table()?;
        Some(Self { path: path(&table.key("path")), quotas: quotas(&table.key("quotas")) })
    }

    /// Reports a section without a gateway, which would be the one to answer.
    pub(super) fn check(root: &Value<'_>, has_gateway: bool) {
        let table = root.named("standing");
        if table.is_set() && !has_gateway {
            table.report(
                "there is no gateway that could answer: expected gateway.upstream, or no [standing]",
            );
        }
    }
}

fn path(value: &Value<'_>) -> String {
    let Some(text) = value.text() else { return DEFAULT_PATH.to_owned() };
    let is_sent = |byte: u8| byte.is_ascii_graphic() && !b"{}?#\\\"<>^`|".contains(&byte);
    if !text.starts_with('/') || !text.bytes().all(is_sent) {
        value.report(
            "expected the path as clients send it, such as /rate-limits: it begins with a slash and \
             has no {, ?, # or space",
        );
    }
    text.to_owned()
}

fn quotas(value: &Value<'_>) -> Quotas {
    if !value.is_set() {
        return DEFAULT_QUOTA.into();
    }
    let read = value.each(Value::parsed::<Quota>);
    // What could not be read has been reported.
    let is_read = read.len() == value.elements().len();
    match Quotas::new(read) {
        Ok(quotas) => quotas,
        Err(error) => {
            if is_read {
                value.report(error);
            }
            DEFAULT_QUOTA.into()
        }
    }
}
