//! Decisions while a thousand dashboards are open, beside decisions while none is.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, interval_at};

use crate::harness::{
    self, Ask, Clients, Core, Directory, Program, fill, free_port, require, slidegate,
};
use crate::spread::Spread;

const PAGES: u32 = 1000;
/// Between two queries of a page.
const QUERY_INTERVAL: Duration = Duration::from_secs(5);
/// What half of the pages ask for, which show what is going on.
const NOW: &[&str] = &["/v1/now", "/v1/policies"];
/// And the other half, which show accounts.
const ACCOUNTS: &[&str] = &[
    "/v1/now",
    "/v1/accounts?sort=nearest&limit=50&max_age_ms=2000",
    "/v1/accounts?sort=denied&limit=50&max_age_ms=2000",
    "/v1/overrides",
    "/v1/policies",
];
const CONNECTIONS: u32 = 64;

const CONFIG: &str = r#"
[decisions]
listen = "127.0.0.1:@HTTP@"
[admin]
listen = "127.0.0.1:@ADMIN@"
[[policy]]
name = "clients"
identity = ["ip"]
quotas = ["600000/min"]
"#;

/// Open pages, which ask while they are visible.
#[derive(Default)]
struct Pages {
    visible: AtomicBool,
    answers: AtomicU64,
}

/// What was seen of the server in one turn.
struct Turn {
    /// The time of a decision, by the server's own clock: with the wait for a processor, if another
    /// thread had it.
    decision_us: f64,
    /// The server's processor time for a request, with what it did for pages.
    cpu_us: f64,
    /// Answers to pages in a second.
    polls: f64,
}

/// What the server has counted so far.
struct Totals {
    decisions: f64,
    seconds: f64,
}

/// Measures, and prints the result.
pub fn run(options: &harness::Options) -> anyhow::Result<()> {
    require(&["wrk"])?;
    let directory = Directory::new()?;
    let (http, admin) = (free_port()?, free_port()?);
    let ports = [("HTTP", http), ("ADMIN", admin)];
    let text = fill(CONFIG, &ports.map(|(name, port)| (name, port.to_string())));
    let mut command = Core::Tested.command(slidegate()?);
    command.args(["serve", "--config"]).arg(directory.write("slidegate.toml", &text)?);
    let program = Program::start(&mut command, http, &directory)?;
    Core::Rest.take(std::process::id())?;
    let clients = Clients::new(&directory, CONNECTIONS)?;
    let body = r#"{"method":"GET","path":"/","client":"@"}"#.to_owned();
    let ask = Ask::Post { path: "/v1/decide", body };
    let pages = Arc::<Pages>::default();
    open(&pages, admin);
    let mut rounds = Vec::new();
    for round in 0..=options.rounds() {
        let turn = |visible: bool| -> anyhow::Result<Turn> {
            pages.visible.store(visible, Ordering::Relaxed);
            let (asked, before) = (pages.answers.load(Ordering::Relaxed), Totals::read(admin)?);
            let cpu_before = program.usage()?.cpu;
            let seen = clients.send(http, &ask, options.turn())?;
            ensure!(seen.broken == 0 && seen.bad_statuses == 0, "decisions were not answered");
            let cpu = program.usage()?.cpu - cpu_before;
            let after = Totals::read(admin)?;
            let asked = pages.answers.load(Ordering::Relaxed) - asked;
            let turn = Turn {
                decision_us: (after.seconds - before.seconds) * 1e6
                    / (after.decisions - before.decisions),
                cpu_us: cpu.as_secs_f64() * 1e6 / seen.answers as f64,
                polls: asked as f64 / seen.took.as_secs_f64(),
            };
            println!(
                "{:>4} pages, {:.0} answers/s: {:.2} us for a decision, {:.1} us of the server's \
                 processor for a request",
                if visible { PAGES } else { 0 },
                turn.polls,
                turn.decision_us,
                turn.cpu_us
            );
            Ok(turn)
        };
        // Who comes first changes, so that a machine that slows down favours neither.
        let turns = match round % 2 {
            0 => [turn(false)?, turn(true)?],
            _ => {
                let with = turn(true)?;
                [turn(false)?, with]
            }
        };
        // The first round is there to warm up.
        if round > 0 {
            rounds.push(turns);
        }
    }
    let ratio = |figure: fn(&Turn) -> f64| {
        Spread::of(rounds.iter().map(|[without, with]| figure(with) / figure(without)))
    };
    let (decision, cpu) = (ratio(|turn| turn.decision_us), ratio(|turn| turn.cpu_us));
    let polls = Spread::of(rounds.iter().map(|[_, with]| with.polls)).middle;
    println!(
        "\nRESULT dashboard pages={PAGES} answers_per_s={polls:.0} decision_time_ratio={:.3} ({:.3} \
         to {:.3}) processor_time_ratio={:.3} ({:.3} to {:.3})",
        decision.middle, decision.least, decision.most, cpu.middle, cpu.least, cpu.most
    );
    Ok(())
}

impl Totals {
    /// From the server's own metrics.
    fn read(admin: u16) -> anyhow::Result<Self> {
        let page = reqwest::blocking::get(format!("http://127.0.0.1:{admin}/metrics"))?.text()?;
        let value = |name: &str| -> anyhow::Result<f64> {
            let name = format!("slidegate_decision_seconds_{name}{{listener=\"decisions\"}} ");
            let value = page.lines().find_map(|line| line.strip_prefix(&name));
            Ok(value.with_context(|| format!("no metric {name}"))?.parse()?)
        };
        Ok(Self { decisions: value("count")?, seconds: value("sum")? })
    }
}

/// Opens all pages on a thread of their own, each at another moment of the pause.
fn open(pages: &Arc<Pages>, admin: u16) {
    let pages = pages.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let start = Instant::now();
            let mut tasks = tokio::task::JoinSet::new();
            for page in 0..PAGES {
                let first = start + QUERY_INTERVAL * page / PAGES;
                let paths = if page % 2 == 0 { NOW } else { ACCOUNTS };
                tasks.spawn(poll(pages.clone(), admin, first, paths));
            }
            while let Some(ended) = tasks.join_next().await {
                let error = ended.expect("no page panics").expect_err("a page asks for ever");
                eprintln!("a page is not answered: {error:#}");
            }
        });
    });
}

async fn poll(pages: Arc<Pages>, admin: u16, first: Instant, paths: &[&str]) -> anyhow::Result<()> {
    let mut ticks = interval_at(first, QUERY_INTERVAL);
    let mut open = None;
    loop {
        ticks.tick().await;
        if !pages.visible.load(Ordering::Relaxed) {
            // The server closes connections that are idle for long, as a hidden page's is.
            open = None;
            continue;
        }
        let mut stream = match open.take() {
            Some(stream) => stream,
            None => TcpStream::connect((Ipv4Addr::LOCALHOST, admin)).await?,
        };
        for path in paths {
            ask(&mut stream, path).await?;
            pages.answers.fetch_add(1, Ordering::Relaxed);
        }
        open = Some(stream);
    }
}

/// Asks for a path and reads the answer, which says how long it is.
async fn ask(stream: &mut TcpStream, path: &str) -> anyhow::Result<()> {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut buffer = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&buffer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
            let head = head.to_ascii_lowercase();
            let length = head.split_once("content-length: ").context("no length")?.1;
            let length: usize = length.split("\r\n").next().context("no length")?.parse()?;
            if body.len() >= length {
                return Ok(());
            }
        }
        ensure!(stream.read_buf(&mut buffer).await? > 0, "the connection was closed");
    }
}
