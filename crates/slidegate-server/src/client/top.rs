//! `slidegate top`: what a server is doing now, drawn again and again.

use std::io;
use std::time::Duration;

use anyhow::{Context, bail};
use http::Method;
use tokio::time::{sleep, timeout};

use super::admin_endpoint::AdminEndpoint;
use super::overview::{Overview, TextSize};
use crate::server::StopSignals;
use crate::terminal::{
    BAD, CANNOT_WRITE, CLEAR_BELOW, CLEAR_REST_OF_LINE, ENTER, LEAVE, columns, is_screen, rows,
    show, show_styled, styled, write,
};
use slidegate::limit::Period;

pub(super) const AFTER_HELP: &str = "\
On a terminal it fills the screen until Ctrl-C; elsewhere it prints once and ends. Decisions are
counted in steps of five seconds: a rate is that of the last step, and a bar chart has those of the
last fifteen minutes, red where some were refused.

Examples:
  slidegate top
  slidegate top --admin http://10.0.0.7:9090 --interval 5s
  slidegate top --once                      as text, once
  slidegate top --json | jq .gateways       GET /v1/now as it is";

#[derive(Debug, clap::Args)]
pub(crate) struct TopArguments {
    /// How often the screen is drawn, at least 100ms
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Period,

    /// Print once and end, on a terminal too
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    server: AdminEndpoint,
}

const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// A server that takes longer is away.
const TIMEOUT: Duration = Duration::from_secs(5);

fn interval(text: &str) -> anyhow::Result<Period> {
    let period: Period = text.parse()?;
    anyhow::ensure!(period.0 >= MIN_INTERVAL, "expected at least {}", Period(MIN_INTERVAL));
    Ok(period)
}

pub(super) fn run(arguments: &TopArguments) -> anyhow::Result<()> {
    let server = &arguments.server;
    server.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        if server.json {
            let now = server.call(Method::GET, "/v1/now", Vec::new()).await?;
            return show(&(String::from_utf8(now.into())? + "\n"));
        }
        if arguments.once || !is_screen() {
            let overview = Overview::read(server).await?;
            return show_styled(&overview.text(TextSize { columns: columns(), rows: None }));
        }
        let mut stop = StopSignals::new()?;
        let _screen = Screen::enter()?;
        tokio::select! {
            () = stop.next() => Ok(()),
            ended = watch(server, arguments.interval.0) => ended,
        }
    })
}

/// Draws until the terminal is gone. While the server is away, what was last known stays.
async fn watch(server: &AdminEndpoint, interval: Duration) -> anyhow::Result<()> {
    let mut known: Option<Overview> = None;
    loop {
        let read = timeout(TIMEOUT, Overview::read(server)).await;
        let read = read.unwrap_or_else(|_| bail!("no answer within {} s", TIMEOUT.as_secs()));
        let trouble = match read {
            Ok(overview) => {
                known = Some(overview);
                None
            }
            Err(error) => Some(format!("{BAD}trying again: {error:#}{BAD:#}")),
        };
        let mut lines: Vec<String> = trouble.into_iter().collect();
        let room = rows().map(|rows| rows - lines.len().min(rows));
        let size = TextSize { columns: columns(), rows: room };
        let text = known.as_ref().map(|overview| overview.text(size));
        lines.extend(text.iter().flat_map(|text| text.lines()).map(str::to_owned));
        lines.truncate(rows().unwrap_or(usize::MAX));
        draw(&lines).context(CANNOT_WRITE)?;
        sleep(interval).await;
    }
}

/// What is drawn over and not cleared first does not flicker.
fn draw(lines: &[String]) -> io::Result<()> {
    let lines: Vec<_> = lines.iter().map(|line| styled(line) + CLEAR_REST_OF_LINE).collect();
    write(&format!("\x1b[H{}{CLEAR_BELOW}", lines.join("\n")))
}

/// The terminal's other screen. On drop there is the first again, as it was.
struct Screen;

impl Screen {
    fn enter() -> anyhow::Result<Self> {
        write(&format!("\x1b[?1049h{ENTER}\x1b[2J")).context(CANNOT_WRITE)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error means that the terminal is gone.
        let _ = write(&format!("{LEAVE}\x1b[?1049l"));
    }
}
