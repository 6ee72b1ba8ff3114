//! How fast `slidegate replay` plays a log of ten million lines through two policies, on one core, and
//! how much memory it takes. On a busy machine, what counts is the rate by processor time.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::harness::{Core, Directory, cpu, peak_rss_bytes, require, slidegate};

/// Options of the comparison.
#[derive(clap::Args)]
pub struct Options {
    /// Lines of the log
    #[arg(long, default_value_t = 10_000_000)]
    lines: u64,
}

/// Client addresses. Few of them send most of the requests, as in any log.
const CLIENTS: u32 = 200_000;
/// Lines of one second.
const PER_SECOND: u64 = 120;
const PAUSE_BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// Each request is counted by both.
const CONFIG: &str = r#"
[[policy]]
name = "address"
identity = ["ip"]
quotas = ["100/min"]

[[policy]]
name = "network"
identity = [{ ip = { v4 = 24 } }]
quotas = ["1000/min"]
"#;

/// Writes the log, replays it and prints the results.
pub fn run(options: &Options) -> anyhow::Result<()> {
    require(&["setpriv", "taskset"])?;
    let directory = Directory::new()?;
    let (log, output) = (directory.path("access.log"), directory.path("report.json"));
    let config = directory.write("replay.toml", CONFIG)?;
    write_log(&log, options.lines).context("the log cannot be written")?;
    let bytes = fs::metadata(&log)?.len();
    println!("{} lines, {:.1} GB, {CLIENTS} clients", options.lines, bytes as f64 / 1e9);

    let mut command = Core::Tested.command(slidegate()?);
    command.args(["replay", "--json", "--config"]).arg(&config).arg(&log);
    command.stdout(File::create(&output)?).stderr(Stdio::inherit());
    let begun = Instant::now();
    let mut child = command.spawn().context("slidegate cannot be run")?;
    let (mut most, mut used) = (0, Duration::ZERO);
    let status = loop {
        // A process that has just ended has none.
        most = most.max(peak_rss_bytes(child.id()).unwrap_or(0));
        used = used.max(cpu(child.id()).unwrap_or_default());
        if let Some(status) = child.try_wait()? {
            break status;
        }
        thread::sleep(PAUSE_BETWEEN_LOOKS);
    };
    let took = begun.elapsed();
    ensure!(status.success(), "slidegate replay failed: {status}");
    let report = fs::read_to_string(&output)?;
    let counted = format!("\"requests\": {},", options.lines);
    ensure!(report.contains(&counted), "not every line was replayed: {report}");
    println!(
        "RESULT replay lines_per_second={:.0} mb_rss={:.0} per_processor_second={:.0}",
        options.lines as f64 / took.as_secs_f64(),
        most as f64 / 1e6,
        options.lines as f64 / used.as_secs_f64()
    );
    Ok(())
}

/// A log in the combined format, with the second of each line as nginx writes it.
fn write_log(path: &Path, lines: u64) -> anyhow::Result<()> {
    let mut log = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut random = fastrand::Rng::with_seed(7);
    for line in 0..lines {
        let second = line / PER_SECOND;
        // The square makes some clients far busier than others.
        let client = (random.f64().powi(2) * f64::from(CLIENTS)) as u32;
        let [_, b, c, d] = (client * 7).to_be_bytes();
        let (path, size) = (random.u32(..5000), random.u32(200..50_000));
        let (day, second) = (1 + second / 86_400, second % 86_400);
        writeln!(
            log,
            "198.{b}.{c}.{d} - - [{day:02}/Jan/2026:{:02}:{:02}:{:02} +0000] \"GET /api/v1/items/{path}?page=2 \
             HTTP/1.1\" 200 {size} \"https://shop.example.com/\" \"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) \
             Gecko/20100101 Firefox/140.0\"",
            second / 3600,
            second / 60 % 60,
            second % 60,
        )?;
    }
    log.flush()?;
    Ok(())
}
