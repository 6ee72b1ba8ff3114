//! The most that each limiter admits in any window, as docs/exactness.md shows it.

mod client;
mod peers;
mod retry;
mod servers;
mod sources;
mod table;
mod tally;
mod traffic;

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use tokio::time::sleep;

use self::client::Connection;
use self::peers::{Env, Peer, Running};
use self::table::{Row, Seen};
use self::traffic::{CONNECTIONS, FORGOTTEN, LIMIT};
use crate::harness::{Directory, fill, require};

#[derive(clap::Args)]
pub struct Options {
    /// Only the limiters with this text in their name, such as "nginx" or "Slidegate"; the page is
    /// then left as it is.
    #[arg(long, default_value = "")]
    only: String,
    /// Seconds of traffic. The pattern takes 12 and repeats; with another length the page is left
    /// as it is.
    #[arg(long, default_value_t = SECONDS, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// The page to write.
    #[arg(long, default_value = "docs/exactness.md")]
    page: PathBuf,
}

const SECONDS: u64 = 12;

/// Puts the same traffic on every limiter, writes the page, and fails if Slidegate admitted more
/// than its quota in some window.
pub fn run(options: &Options) -> anyhow::Result<()> {
    require(&["redis-server"])?;
    let peers: Vec<Peer> = Peer::all().filter(|it| it.name().contains(&options.only)).collect();
    let text = &options.only;
    ensure!(!peers.is_empty(), "no limiter has '{text}' in its name; the table has all names");
    let directory = Directory::new()?;
    let env = Env::prepare(&directory)?;
    let (start, length) = (Instant::now(), Duration::from_secs(options.seconds));
    let mut rows = Vec::new();
    for (number, peer) in peers.iter().enumerate() {
        let name = peer.name();
        eprintln!("{:>4} s  {} of {}: {name}", start.elapsed().as_secs(), number + 1, peers.len());
        let result = peer.version().and_then(|version| {
            let seen = observe(*peer, &env, length).map_err(|error| format!("{error:#}"))?;
            Ok((version, seen))
        });
        if let Err(why) = &result {
            println!("SKIPPED {name}: {why}");
        }
        rows.push(Row { peer: *peer, result });
    }
    let (table, result) = (table::markdown(&rows), table::result(&rows));
    println!("\n{table}\n\n{result}");
    if options.only.is_empty() && options.seconds == SECONDS {
        let page = fill(include_str!("exactness.md"), &[("TABLE", table), ("RESULT", result)]);
        let path = &options.page;
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    for row in rows.iter().filter(|row| row.is_ours()) {
        let (name, units) = (row.peer.name(), LIMIT.units);
        let most = row.seen().with_context(|| format!("{name} was not measured"))?.most;
        ensure!(most <= units, "{name} admitted {most} in one window; its quota is {units}");
    }
    Ok(())
}

/// Starts the limiter, sends the traffic, and then tries what refusals say.
fn observe(peer: Peer, env: &Env, length: Duration) -> anyhow::Result<Seen> {
    let Running { ask, ports, .. } = &peer.start(env)?;
    let ports = ports.iter().cycle().take(CONNECTIONS);
    let connections = ports.map(|port| Connection::new(*ask, *port));
    let connections = connections.collect::<anyhow::Result<Vec<_>>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        client::wait_until_ready(&connections).await?;
        sleep(FORGOTTEN).await;
        let calls = traffic::send(&connections, length).await?;
        Ok(Seen {
            most: LIMIT.most_in_any_window(&calls),
            used: LIMIT.used(&calls),
            retry_after: retry::observe(&connections).await?,
        })
    })
}
