//! `slidegate demo`: a real run on this machine. A gateway, a small API behind it, and clients that
//! send more than they may.

mod check;
mod client;
mod figure;
mod fixed_window;
mod introduction;
mod log;
mod max_in_window;
mod scenario;
mod screen;
mod sender;
mod server;
mod stats;
mod table;
mod upstream;
mod view;

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use slidegate::limit::SystemClock;
use slidegate::{Clock, Timestamp};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use self::check::Checks;
use self::client::Client;
use self::introduction::DemoAddresses;
use self::log::RequestLog;
use self::scenario::ClientSpec;
use self::server::DemoServer;
use self::stats::ClientStats;
use self::upstream::DemoUpstream;
use self::view::{DemoProgress, DemoView};
use crate::server::{StopSignals, Workers};
use crate::shutdown::{Closing, shutdown};
use crate::terminal::{self, Paint};

pub(crate) const AFTER_HELP: &str = "\
Everything listens on 127.0.0.1, on ports that are free. Where standard output is no terminal, there
is a line every five seconds in place of the table.

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

/// How often the table is drawn.
const FRAME: Duration = Duration::from_millis(200);

/// For the clients to make their connections.
const HEAD_START: Duration = Duration::from_millis(200);

/// For clients that fell behind, on a machine that is busy with other things. What they have not
/// sent by then they do not send.
const OVERTIME: Duration = Duration::from_secs(3);

/// How long the clients may take to end.
const PATIENCE: Duration = Duration::from_secs(5);

const CANNOT_WRITE: &str = "cannot write to standard output";

/// Why the clients are not watched any longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DemoEnd {
    /// They are done.
    Done,
    /// By a signal.
    Stopped,
}

/// Plays, shows what happens, and fails if a limit did not hold.
pub(crate) fn run(arguments: &DemoArguments) -> anyhow::Result<()> {
    let control = crate::server::runtime().context("cannot begin")?;
    let ended = control.block_on(play(arguments));
    control.shutdown_background();
    ended
}

async fn play(arguments: &DemoArguments) -> anyhow::Result<()> {
    let mut stop = StopSignals::new()?;
    let upstream = DemoUpstream::begin()?;
    let demo_server = DemoServer::open(upstream.url()).await?;
    let (gateway, admin) = (demo_server.gateway()?, demo_server.admin()?);
    let places = DemoAddresses { gateway, admin, upstream: upstream.url() };
    let length = Duration::from_secs(arguments.seconds.into());
    let paint = Paint::for_stdout();
    let policies = demo_server.server.live.gate().policies();
    show(&places.introduction(paint, length, &policies)?)?;

    let mut run = DemoRun::begin(&places, length, upstream)?;
    let end = match run.watch(paint, &mut stop).await {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => DemoEnd::Stopped,
        watched => watched.context(CANNOT_WRITE)?,
    };
    run.end().await;

    let checks = Checks::new(&policies, &run.stats)?;
    show(&table::draw(paint, &run.stats, &checks, run.upstream.answered()))?;
    if arguments.keep && end == DemoEnd::Done {
        show(&places.farewell(paint))?;
        stop.next().await;
    }
    demo_server.close(&mut stop).await;
    checks.check()
}

fn show(text: &str) -> anyhow::Result<()> {
    terminal::show(text).context(CANNOT_WRITE)
}

/// The clients at work.
struct DemoRun {
    clock: Arc<SystemClock>,
    begin: Timestamp,
    length: Duration,
    upstream: DemoUpstream,
    stats: Vec<ClientStats>,
    closing: Closing,
    clients: JoinHandle<()>,
}

impl DemoRun {
    /// Each client has a thread of its own, as if it were another machine.
    fn begin(
        places: &DemoAddresses,
        length: Duration,
        upstream: DemoUpstream,
    ) -> anyhow::Result<Self> {
        let clock = Arc::new(SystemClock::new());
        let (begin, gateway) = (clock.now() + HEAD_START, places.gateway);
        let (closing, closed) = shutdown();
        let (mut stats, mut threads) = (Vec::new(), Workers::default());
        for client in Client::ALL {
            let log = Arc::new(RequestLog::default());
            stats.push(ClientStats::new(client, log.clone()));
            let (clock, mut closed) = (clock.clone(), closed.clone());
            let spec = ClientSpec { client, gateway, clock, begin, length, log };
            threads.begin(move || async move {
                tokio::select! {
                    () = spec.play() => {}
                    () = closed.begun() => {}
                }
            })?;
        }
        let clients = tokio::task::spawn_blocking(move || threads.join());
        Ok(Self { clock, begin, length, upstream, stats, closing, clients })
    }

    /// Shows the clients' progress until they are done or a signal comes. An error if the output is
    /// closed.
    async fn watch(&mut self, paint: Paint, stop: &mut StopSignals) -> io::Result<DemoEnd> {
        let mut view = DemoView::new(paint)?;
        let mut frames = interval(FRAME);
        frames.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut late = pin!(sleep(self.length + OVERTIME));
        let end = loop {
            tokio::select! {
                _ = &mut self.clients => break DemoEnd::Done,
                () = &mut late => break DemoEnd::Done,
                () = stop.next() => break DemoEnd::Stopped,
                _ = frames.tick() => self.show(&mut view)?,
            }
        };
        view.end()?;
        Ok(end)
    }

    fn show(&mut self, view: &mut DemoView) -> io::Result<()> {
        self.look();
        let now = self.clock.now();
        let elapsed = now.saturating_since(self.begin);
        let (length, upstream) = (self.length, self.upstream.answered());
        view.update(&self.stats, DemoProgress { now, elapsed, length, upstream })
    }

    /// Sends the clients home, whatever they are at, and takes the last records.
    async fn end(&mut self) {
        self.closing.begin();
        if !self.clients.is_finished() {
            let _ = timeout(PATIENCE, &mut self.clients).await;
        }
        self.look();
    }

    fn look(&mut self) {
        self.stats.iter_mut().for_each(ClientStats::look);
    }
}
