//! Decisions over HTTP: Slidegate's decision service beside throttlecrab-server.

use anyhow::Context;

use crate::harness::{
    self, Ask, Core, Directory, Pair, Program, Runner, Traffic, fill, find, free_port, slidegate,
};

/// A service under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Service {
    Throttlecrab,
    Slidegate,
    /// The same, with every decision written to an audit trail.
    Audited,
}

impl Service {
    const ALL: [Self; 3] = [Self::Throttlecrab, Self::Slidegate, Self::Audited];

    fn name(self) -> &'static str {
        match self {
            Self::Throttlecrab => "throttlecrab-server",
            Self::Slidegate => "slidegate, memory",
            Self::Audited => "slidegate, audited",
        }
    }

    fn start(self, traffic: Traffic, directory: &Directory) -> anyhow::Result<Runner> {
        let (name, port) = (self.name(), free_port()?);
        let (program, ask) = match self {
            Self::Throttlecrab => (throttlecrab(port, directory), ask_throttlecrab(traffic)),
            Self::Slidegate => (serve(traffic, port, "", directory), ask_slidegate()),
            Self::Audited => {
                let file = directory.path(&format!("audit-{}.jsonl", traffic.name()));
                let audit = format!("[audit]\nfile = {file:?}\nevery_decision = true\nkeep = 1");
                (serve(traffic, port, &audit, directory), ask_slidegate())
            }
        };
        let program = program.with_context(|| format!("cannot start {name}"))?;
        Ok(Runner { name, traffic, program, port, ask })
    }
}

/// Measures, and prints the table and the result.
pub fn run(options: &harness::Options) -> anyhow::Result<()> {
    harness::require(&["wrk"])?;
    let directory = Directory::new()?;
    let has_peer = find(Service::Throttlecrab.name()).is_file();
    let mut runners = Vec::new();
    for traffic in Traffic::ALL {
        for service in Service::ALL {
            let can = has_peer || service != Service::Throttlecrab;
            if can && options.want(service.name(), traffic) {
                runners.push(service.start(traffic, &directory)?);
            }
        }
    }
    let table = harness::run(&runners, options, &directory)?;
    table.print();
    if !has_peer {
        println!("\nSKIPPED throttlecrab-server: it is missing; ./scripts/bench installs it");
    }
    let pair = Pair { ours: Service::Slidegate.name(), theirs: Service::Throttlecrab.name() };
    let ratio = table.rate_ratio(Traffic::Allowed, pair);
    let ratio = ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    println!("\nRESULT decide throttlecrab_http_ratio={ratio}");
    Ok(())
}

/// What a client may spend in 60 seconds.
fn units(traffic: Traffic) -> u32 {
    match traffic {
        Traffic::Allowed => 600_000,
        Traffic::Refused => 1,
    }
}

fn throttlecrab(port: u16, directory: &Directory) -> anyhow::Result<Program> {
    let mut command = Core::Tested.command(find(Service::Throttlecrab.name()));
    command.args(["--http", "--http-host", "127.0.0.1", "--http-port", &port.to_string()]);
    // It has no setting for this, but its runtime has.
    command.env("TOKIO_WORKER_THREADS", "1");
    Program::start(&mut command, port, directory)
}

/// Every request carries the quota.
fn ask_throttlecrab(traffic: Traffic) -> Ask {
    let units = units(traffic);
    let body =
        format!(r#"{{"key":"@","max_burst":{units},"count_per_period":{units},"period":60}}"#);
    Ask::Post { path: "/throttle", body }
}

fn serve(
    traffic: Traffic,
    port: u16,
    audit: &str,
    directory: &Directory,
) -> anyhow::Result<Program> {
    let blanks = [
        ("PORT", port.to_string()),
        ("ADMIN", free_port()?.to_string()),
        ("UNITS", units(traffic).to_string()),
        ("AUDIT", audit.to_owned()),
    ];
    let text = fill(include_str!("slidegate.toml"), &blanks);
    let config = directory.write(&format!("slidegate-{port}"), &text)?;
    let mut command = Core::Tested.command(slidegate()?);
    command.args(["serve", "--config"]).arg(config);
    Program::start(&mut command, port, directory)
}

fn ask_slidegate() -> Ask {
    let body = r#"{"method":"GET","path":"/","client":"@"}"#.to_owned();
    Ask::Post { path: "/v1/decide", body }
}
