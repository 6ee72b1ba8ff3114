//! `slidegate demo`: a real run on this machine. A gateway, a small API behind it, and clients that
//! send more than they may.

mod clients;
mod report;
mod screen;
mod server;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::Context;
use slidegate::Clock;
use slidegate::limit::SystemClock;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};

use self::clients::{CLIENTS, ClientLogs};
use self::report::Report;
use self::screen::ProgressView;
use self::server::{DemoServer, DemoUpstream};
use crate::server::StopSignals;
use crate::terminal::{CANNOT_WRITE, show, show_styled};

pub(crate) const AFTER_HELP: &str = "\
Starts a gateway with a small API behind it on 127.0.0.1, on free ports, and four clients that send
it requests. Their own logs show in the end how many were admitted in any interval of a window.
Where standard output is no terminal, there is a line every five seconds in place of the live table.

Exit codes:
  0  every limit held, also if Ctrl-C ended it early
  1  a limit did not hold, or the demo could not run
  2  the command line is wrong

Examples:
  slidegate demo
  slidegate demo --keep        go on serving, to be tried with curl
  slidegate demo --seconds 90  see the script get its next 600";

/// Arguments of `slidegate demo`.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoArguments {
    /// Keep the gateway up after the clients are done, until Ctrl-C
    #[arg(long)]
    keep: bool,

    /// How long the clients send, 1 to 600 seconds
    #[arg(long, value_name = "N", default_value_t = 30)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=600))]
    seconds: u16,
}

/// Between two updates of what is shown.
const FRAME: Duration = Duration::from_millis(200);

/// For clients that fell behind on a busy machine. What they have not sent by then is not sent.
const OVERTIME: Duration = Duration::from_secs(3);

/// Runs the demo, and fails if a limit did not hold.
pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<()> {
    // For the clients, the API and the display; the gateway runs on separate threads.
    let runtime = tokio::runtime::Runtime::new().context("cannot begin")?;
    let result = runtime.block_on(play(arguments));
    runtime.shutdown_background();
    result
}

async fn play(arguments: &DemoArguments) -> anyhow::Result<()> {
    let mut stop = StopSignals::new()?;
    let upstream = DemoUpstream::start().await?;
    let server = DemoServer::start(upstream.address).await?;
    let length = Duration::from_secs(arguments.seconds.into());
    show_styled(&report::introduction(length, &server))?;

    let (logs, is_stopped) = watch(&server, &upstream, length, &mut stop).await?;
    let report = Report::new(&logs, upstream.answered.load(Ordering::Relaxed));
    show_styled(&report.conclusion())?;
    if arguments.keep && !is_stopped {
        show("\n  The gateway stays up until Ctrl-C: try the commands above.\n")?;
        stop.next().await;
    }
    report.verify()
}

/// Starts the clients, and shows their progress until they are done. Returns their logs, and
/// whether it was stopped before that: by a signal, or because the output was closed.
async fn watch(
    server: &DemoServer,
    upstream: &DemoUpstream,
    length: Duration,
    stop: &mut StopSignals,
) -> anyhow::Result<(ClientLogs, bool)> {
    let mut view = ProgressView::new().context(CANNOT_WRITE)?;
    let clock = Arc::new(SystemClock::new());
    let begin = clock.now();
    let (sender, mut requests) = mpsc::unbounded_channel();
    for client in 0..CLIENTS.len() {
        clients::start(client, server.gateway, begin, length, &clock, &sender);
    }
    drop(sender);
    let mut logs = ClientLogs::default();
    let mut frames = interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut late = pin!(sleep(length + OVERTIME));
    let is_stopped = loop {
        tokio::select! {
            request = requests.recv() => match request {
                Some((client, request)) => logs[client].push(request),
                None => break false,
            },
            () = &mut late => break false,
            () = stop.next() => break true,
            _ = frames.tick() => {
                let report = Report::new(&logs, upstream.answered.load(Ordering::Relaxed));
                match view.update(&report, clock.now().saturating_since(begin), length) {
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => break true,
                    updated => updated.context(CANNOT_WRITE)?,
                }
            }
        }
    };
    Ok((logs, is_stopped))
}
