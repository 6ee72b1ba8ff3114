//! The demo's introduction: addresses, limits, clients and commands to try.

use std::net::SocketAddr;
use std::time::Duration;

use slidegate::Policies;

use super::check;
use super::client::{Client, Limit};
use crate::terminal::{Paint, Tone};

/// Where a person can reach the demo.
#[derive(Debug, Clone)]
pub(super) struct DemoAddresses {
    pub(super) gateway: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) upstream: String,
}

impl DemoAddresses {
    /// Addresses, limits, clients and commands to try.
    pub(super) fn introduction(
        &self,
        paint: Paint,
        length: Duration,
        policies: &Policies,
    ) -> anyhow::Result<String> {
        let title = paint.tone(Tone::Strong, "Slidegate demo");
        let Self { gateway, upstream, .. } = self;
        let parts = [
            section(paint, "gateway", [format!("http://{gateway} -> {upstream}")]),
            section(paint, "limits", limits(policies)?),
            section(paint, "clients", clients()),
            self.tries(paint),
        ];
        Ok(format!(
            "{title}: a gateway, the API behind it and four clients, for {} seconds.\n\n{}\n",
            length.as_secs(),
            parts.concat(),
        ))
    }

    /// What is shown when the clients are gone and the gateway is not.
    pub(super) fn farewell(&self, paint: Paint) -> String {
        format!("\n  The gateway stays up until Ctrl-C.\n{}", self.tries(paint))
    }

    /// Commands to type meanwhile.
    fn tries(&self, paint: Paint) -> String {
        let Self { gateway, admin, .. } = self;
        let commands = [
            format!("curl -i http://{gateway}/v1/reports"),
            format!("curl -i -X POST http://{gateway}/login"),
            format!("curl -s http://{admin}/metrics | grep rate_limit"),
        ];
        section(paint, "try", commands)
    }
}

fn limits(policies: &Policies) -> anyhow::Result<[String; 4]> {
    let quotas = |limit| -> anyhow::Result<String> {
        let quotas = check::quotas(policies, limit)?;
        Ok(quotas.iter().map(ToString::to_string).collect::<Vec<_>>().join(" + "))
    };
    let (free, pro) = (quotas(Limit::Plan("free"))?, quotas(Limit::Plan("pro"))?);
    let flood = quotas(Limit::Policy("flood"))?;
    let (search, login) = (quotas(Limit::Policy("search"))?, quotas(Limit::Policy("login"))?);
    Ok([
        format!("flood guard      {flood} for each address, before everything else"),
        format!("plans            free {free}, pro {pro}"),
        format!("/v1/search       {search} for each API key"),
        format!("POST /login      {login} for each address"),
    ])
}

fn clients() -> [String; 4] {
    Client::ALL.map(|client| format!("{:<17}{}", client.name(), client.about()))
}

/// Lines under a heading.
fn section<const N: usize>(paint: Paint, word: &str, lines: [String; N]) -> String {
    let mut text = String::new();
    for (index, line) in lines.into_iter().enumerate() {
        let word = if index == 0 { word } else { "" };
        text += &format!("  {}{line}\n", paint.tone(Tone::Faint, &format!("{word:<9}")));
    }
    text
}
