//! Small requests beside bulk downloads: whether the large ones starve the small.

use std::thread;
use std::time::Duration;

use anyhow::ensure;

use crate::harness::{Ask, Clients, Directory, Options, Runner, Seen};
use crate::spread::Spread;

/// What the upstream has under `/bulk`.
const BODY_BYTES: usize = 4 << 20;
/// Clients that download, one body after the other.
const DOWNLOADS: u32 = 64;
/// Few enough that small requests wait for downloads, and not for each other.
const SMALL_CONNECTIONS: u32 = 4;
/// Downloads begin so much earlier than small requests, and end so much later.
const MARGIN: Duration = Duration::from_secs(1);

/// Writes the body that upstream serves.
pub fn write_body(directory: &Directory) -> anyhow::Result<()> {
    directory.write("bulk", &"slidegate ".repeat(BODY_BYTES / 10)).map(drop)
}

/// Both gateways in turns, and the ratio of ours to theirs in the middle of the rounds.
pub fn run(
    [ours, theirs]: [&Runner; 2],
    options: &Options,
    directory: &Directory,
) -> anyhow::Result<()> {
    let downloads = Clients::new(directory, DOWNLOADS)?;
    let small = Clients::new(directory, SMALL_CONNECTIONS)?;
    let turn = |runner: &Runner| -> anyhow::Result<(Seen, Seen)> {
        let (port, length) = (runner.port, options.turn());
        let bulk = Ask::Get { path: "/bulk" };
        let (bulk, small) = thread::scope(|scope| {
            let bulk = scope.spawn(|| downloads.send(port, &bulk, length + 2 * MARGIN));
            thread::sleep(MARGIN);
            let small = small.send(port, &Ask::Get { path: "/" }, length);
            (bulk.join().expect("no panics"), small)
        });
        let (bulk, small) = (bulk?, small?);
        for seen in [&bulk, &small] {
            let bad = seen.bad_statuses + seen.broken;
            ensure!(seen.answers > 0 && bad == 0, "{}: {bad} of {}", runner.name, seen.answers);
        }
        Ok((bulk, small))
    };
    println!("\nsmall requests on {SMALL_CONNECTIONS} connections beside {DOWNLOADS} downloads");
    println!("  {:<24}{:>8}{:>8}{:>16}", "", "p50 ms", "p99 ms", "downloads MB/s");
    let mut ratios = Vec::new();
    for _ in 0..options.rounds() {
        let (theirs_seen, ours_seen) = (turn(theirs)?, turn(ours)?);
        for (name, (bulk, small)) in [(theirs.name, &theirs_seen), (ours.name, &ours_seen)] {
            let ms = |latency: Duration| latency.as_secs_f64() * 1e3;
            let rate = (bulk.answers as usize * BODY_BYTES) as f64 / bulk.took.as_secs_f64() / 1e6;
            println!("  {name:<24}{:>8.2}{:>8.2}{rate:>16.0}", ms(small.p50), ms(small.p99));
        }
        ratios.push(ours_seen.1.p50.as_secs_f64() / theirs_seen.1.p50.as_secs_f64());
    }
    println!("\nRESULT bulk p50_ratio={:.2}", Spread::of(ratios).middle);
    Ok(())
}
