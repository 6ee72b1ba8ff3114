//! `slidegate health`: whether a server is ready, in one line and an exit code.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use http::{Method, StatusCode};
use tokio::time::timeout;

use super::admin_endpoint::AdminUrl;
use crate::api::Readiness;
use crate::{terminal, visible};

pub(super) const AFTER_HELP: &str = "\
It asks GET /readyz, which needs no token, and waits for at most 2 seconds. A server whose Redis is
away is ready as long as no policy says on_store_error = \"deny\".

Examples:
  slidegate health
  slidegate health --admin http://10.0.0.7:9090
  HEALTHCHECK CMD [\"/usr/bin/slidegate\", \"health\"]    in a Dockerfile

Environment:
  SLIDEGATE_ADMIN  where the server's admin endpoint is, if --admin does not say

Exit codes:
  0  ready, or degraded: standard output says why
  1  not ready or unreachable: standard error says why
  2  the command line is wrong";

/// For connecting and answering together.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn run(url: &AdminUrl) -> anyhow::Result<()> {
    url.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked =
        async { timeout(TIMEOUT, url.send(Method::GET, "/readyz", Vec::new(), None)).await };
    let (status, body) = match runtime.block_on(asked) {
        Ok(answer) => answer.context("unreachable")?,
        Err(_) => bail!("unreachable: {url} did not answer within {} s", TIMEOUT.as_secs()),
    };
    let readiness: Readiness = visible::from_json(&body).ok().with_context(|| {
        format!("unreachable: {url} answered {status}, but not as slidegate's admin endpoint does")
    })?;
    let line = line(&readiness);
    ensure!(status == StatusCode::OK, line);
    terminal::show(&(line + "\n"))
}

fn line(readiness: &Readiness) -> String {
    let reason = readiness.reason().unwrap_or_default();
    let state = match readiness.state.as_deref() {
        None => String::new(),
        Some("closed") => " up".to_owned(),
        Some(state) => format!(" {state}"),
    };
    match readiness {
        Readiness { draining: true, .. } => {
            "not ready: draining, finishing requests in flight".to_owned()
        }
        Readiness { ready: false, .. } => format!("not ready: {reason}"),
        Readiness { degraded: true, .. } => format!("degraded: {reason}"),
        Readiness { store, .. } => format!("ready: {store}{state}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_what_readyz_does() {
        let up =
            r#"{"ready":true,"degraded":false,"draining":false,"store":"redis","state":"closed"}"#;
        let open =
            up.replace("closed", "open").replace(r#""degraded":false"#, r#""degraded":true"#);
        let refusing = open.replace(r#""ready":true"#, r#""refusing":["api"],"ready":false"#);
        let errors = r#""degraded":true,"key_errors":[{"policy":"login","reason":"wrong-type"}]"#;
        let sources = r#""degraded":true,"sources":[{"source":"key_source","error":"refused","age_s":7},
            {"source":"https://auth.example.com/","error":"timed out"}]"#;
        let sources_text = "key_source cannot be asked, what is known is 7 s old: refused; \
                            https://auth.example.com/ has never answered: timed out";
        let cut_off = "Redis circuit breaker open; each policy's on_store_error applies";
        for (json, expected) in [
            (up.to_owned(), "ready: redis up"),
            (up.replace("closed", "untried"), "ready: redis untried"),
            (up.replace(r#""redis","state":"closed""#, r#""memory""#), "ready: memory"),
            (
                refusing.replace("open", "unreached"),
                "not ready: Redis has not replied yet; refusing requests under api",
            ),
            (open.clone(), &format!("degraded: {cut_off}")),
            (
                open.replace(r#""degraded":true"#, sources),
                &format!("degraded: {cut_off}; {sources_text}"),
            ),
            (up.replace(r#""degraded":false"#, sources), &format!("degraded: {sources_text}")),
            (refusing, "not ready: Redis circuit breaker open; refusing requests under api"),
            (
                up.replace(r#""degraded":false"#, errors),
                "degraded: Redis cannot count in keys of login (wrong-type)",
            ),
            (
                up.replace(r#""draining":false"#, r#""draining":true"#),
                "not ready: draining, finishing requests in flight",
            ),
        ] {
            assert_eq!(line(&serde_json::from_str(&json).unwrap()), expected, "{json}");
        }
    }
}
