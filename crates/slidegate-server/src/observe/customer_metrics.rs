//! Metrics of the sources of keys and tokens.

use std::fmt;

use prometheus_client::metrics::counter::ConstCounter;
use slidegate_customers::{Customers, SourceStatus};

use super::page::Page;

pub(super) fn encode(customers: &Customers, page: &mut Page<'_>) -> fmt::Result {
    let keys = customers.keys().map(|status| ("key_source".to_owned(), status));
    let sources: Vec<(String, SourceStatus)> =
        keys.into_iter().chain(customers.issuers()).collect();
    let each = |value: fn(&SourceStatus) -> Option<f64>| {
        let value = move |(source, status): &(String, SourceStatus)| {
            Some(([("source", source.clone())], value(status)?))
        };
        sources.iter().filter_map(value)
    };
    page.gauges(
        "slidegate_source_up",
        "Whether the key source, or the issuer of tokens, answered when it was last asked.",
        each(|status| Some(f64::from(u8::from(!status.is_degraded())))),
    )?;
    page.gauges(
        "slidegate_source_age_seconds",
        "Age of what is known from the key source, or from the issuer of tokens.",
        each(|status| Some(status.answered_ago?.as_secs_f64())),
    )?;
    page.gauges(
        "slidegate_source_keys",
        "API keys known from the key source, or signing keys of the issuer of tokens.",
        each(|status| Some(status.keys as f64)),
    )?;
    let Some(tokens) = customers.tokens() else { return Ok(()) };
    let help = "Signatures of tokens that were checked. Tokens that are remembered cost none.";
    page.metric("slidegate_token_checks", help, &ConstCounter::new(tokens.checks()))
}
