//! `slidegate explain`: which policies a request falls under, and why not under the others.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use http::{HeaderMap, HeaderName, HeaderValue};
use slidegate::{Bearer, Policies};
use slidegate_replay::DescribedRequest;
use slidegate_tower::ClientAddress;

use crate::config::{self, Config, Flags, Sources};
use crate::{customers, terminal};

pub(crate) const AFTER_HELP: &str = "\
The file is read as `serve` reads it, with the environment, and nothing is connected to or counted.
API keys are shown by name, or as digests as other secrets are. A token is verified if its issuer's
keys are in a file; otherwise say --user and --customer, or ask a running server (POST /v1/explain).

Exit codes:
  0  the request is explained
  1  the file or the request is wrong
  2  the command line is wrong

Examples:
  slidegate explain --config slidegate.toml --method POST --path /login --client 203.0.113.7
  slidegate explain --config slidegate.toml --path /reports --header 'x-api-key: k-123'
  slidegate explain --config slidegate.toml --path / --peer 10.0.0.1 \\
      --header 'x-forwarded-for: 203.0.113.7' --header 'x-plan: pro'";

/// Arguments of `slidegate explain`.
#[derive(Debug, clap::Args)]
pub(crate) struct ExplainArguments {
    /// The configuration file, or - for standard input
    #[arg(short, long, value_name = "FILE")]
    config: PathBuf,

    #[command(flatten)]
    request: DescribedRequest,

    /// A header of the request, as 'name: value'; repeat it for several
    #[arg(long, value_name = "HEADER")]
    header: Vec<String>,
}

/// Explains the request.
pub(crate) fn run(arguments: &ExplainArguments) -> anyhow::Result<()> {
    let sources = Sources::of_command(Some(&arguments.config), Flags::default())?;
    let config = config::load(&sources)?.config;
    terminal::show(&arguments.explain(&config)?)
}

/// What policies make of a request, a line for each, or why it is refused before they are asked.
pub(crate) fn explanation(
    policies: &Policies,
    client_address: &ClientAddress,
    request: &DescribedRequest,
    bearer: Option<&Bearer>,
) -> String {
    let facts = request.facts(client_address);
    let facts = bearer.map_or(facts, |bearer| facts.bearer(bearer));
    match policies.check(&facts) {
        Ok(()) => policies.explain(&facts).to_string(),
        Err(error) => format!("it is refused with 400: {error}\n"),
    }
}

impl ExplainArguments {
    fn explain(&self, config: &Config) -> anyhow::Result<String> {
        let limiter = &config.limiter;
        let request = DescribedRequest { headers: self.headers()?, ..self.request.clone() };
        let readings = limiter.policies.other_paths(&request.path);
        let client = request.explain_client(&limiter.client_address);
        let client = client.unwrap_or("unknown, as neither --client nor --peer says".to_owned());
        let mut text = format!("request: {} {}\n", request.method, request.path);
        if !readings.is_empty() {
            let _ = writeln!(text, "path: also read as {}", readings.join(", "));
        }
        let _ = writeln!(text, "client: {client}");
        let (bearer, credentials) =
            customers::explain_offline(&config.server.customers, &request.headers)?;
        for line in credentials {
            let _ = writeln!(text, "{line}");
        }
        let (policies, clients) = (&limiter.policies, &limiter.client_address);
        let explanation = explanation(policies, clients, &request, bearer.as_ref());
        let _ = write!(text, "\n{explanation}");
        Ok(text)
    }

    /// The headers; an error names the wrong one without repeating its value.
    fn headers(&self) -> anyhow::Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (i, line) in self.header.iter().enumerate() {
            let parsed = header(line);
            let (name, value) = parsed.with_context(|| {
                format!("--header number {}: expected a header such as 'x-api-key: k'", i + 1)
            })?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
}
