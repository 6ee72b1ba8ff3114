//! Serves the URL shortener until Ctrl-C. `REDIS_URL` says where to count, in memory without it, and
//! `PORT` where to listen, 3000 without it.

use std::env;
use std::net::Ipv4Addr;

use anyhow::Context;
use slidegate::MemoryStore;
use slidegate_redis::{RedisStore, ResilientStore};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let app = match variable("REDIS_URL")? {
        Some(url) => {
            let redis = RedisStore::builder(url).build().context("REDIS_URL")?;
            url_shortener::app(ResilientStore::new(redis))?
        }
        None => url_shortener::app(MemoryStore::new())?,
    };
    let port = variable("PORT")?.map_or(Ok(3000), |port| port.parse()).context("PORT")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!("listening on http://{}", listener.local_addr()?);
    let shutdown = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    Ok(url_shortener::serve(listener, app, shutdown).await?)
}

/// A variable of the environment, if it is set to something. Errors do not show it.
fn variable(name: &str) -> anyhow::Result<Option<String>> {
    let Some(value) = env::var_os(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    value.into_string().map(Some).map_err(|_| anyhow::anyhow!("{name} is not UTF-8"))
}
