//! Gateways over TLS 1.3, as users run them at the edge: HTTP/2 and HTTP/1.1 under `h2load`, and
//! handshakes by `openssl s_time`.

use std::process::Command;

use anyhow::{Context, ensure};

use crate::gateway::{Env, Gateway};
use crate::harness::{Core, Directory, Options, Runner, Traffic};

/// How a request is sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

impl Protocol {
    const ALL: [Self; 2] = [Self::Http2, Self::Http1];

    fn name(self) -> &'static str {
        match self {
            Self::Http1 => "h1",
            Self::Http2 => "h2",
        }
    }

    /// The flags of h2load: 64 requests in flight either way.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Http1 => &["--h1", "-c64", "-m1"],
            Self::Http2 => &["-c8", "-m8"],
        }
    }
}

const GATEWAYS: [Gateway; 3] = [Gateway::Nginx, Gateway::Memory, Gateway::Envoy];

/// Measures, and prints the table and the result.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let directory = Directory::new()?;
    let certificate = make_certificate(&directory)?;
    let env = Env::prepare(&directory)?.with_certificate(certificate);
    let _upstream = env.upstream()?;
    let mut result = "RESULT tls".to_owned();
    for protocol in Protocol::ALL {
        for traffic in Traffic::ALL {
            let runners = start(&env, traffic)?;
            let mut ratios = vec![Vec::new(); runners.len()];
            let mut rates = vec![Vec::new(); runners.len()];
            for _ in 0..options.rounds() {
                let round = runners.iter().map(|runner| load(runner, protocol, traffic, options));
                let round = round.collect::<anyhow::Result<Vec<f64>>>()?;
                for (index, rate) in round.iter().enumerate() {
                    rates[index].push(*rate);
                    ratios[index].push(rate / round[0]);
                }
            }
            println!("{}, {}:", protocol.name(), traffic.name());
            for (index, runner) in runners.iter().enumerate() {
                let (rate, ratio) = (median(&mut rates[index]), median(&mut ratios[index]));
                println!("  {:<24}{rate:>9.0} a second{ratio:>8.2} of nginx", runner.name);
                if index == 1 {
                    let outcome = if traffic == Traffic::Allowed { "allow" } else { "deny" };
                    result += &format!(" {}_{outcome}={ratio:.2}", protocol.name());
                }
            }
        }
    }
    let runners = start(&env, Traffic::Allowed)?;
    println!("handshakes a second, one client after another:");
    // Envoy does not end a connection of HTTP/1.0, which s_time waits for.
    for (index, runner) in runners.iter().enumerate().take(2) {
        let (new, resumed) = (handshakes(runner, "-new")?, handshakes(runner, "-reuse")?);
        println!("  {:<24}{new:>9.0} new{resumed:>9.0} resumed", runner.name);
        if index == 1 {
            result += &format!(" handshakes={new:.0} resumed={resumed:.0}");
        }
    }
    println!("\n{result}");
    Ok(())
}

fn start(env: &Env<'_>, traffic: Traffic) -> anyhow::Result<Vec<Runner>> {
    let gateways =
        GATEWAYS.into_iter().filter(|gateway| gateway.is_installed() && gateway.is_for(traffic));
    gateways.map(|gateway| env.start(gateway, traffic)).collect()
}

fn make_certificate(directory: &Directory) -> anyhow::Result<[String; 2]> {
    let files = ["certificate.pem", "key.pem"].map(|name| format!("{directory}/{name}"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-out", &files[0], "-keyout", &files[1]])
        .output()
        .context("openssl cannot be run")?;
    ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    Ok(files)
}

/// Requests a second of one turn.
fn load(
    runner: &Runner,
    protocol: Protocol,
    traffic: Traffic,
    options: &Options,
) -> anyhow::Result<f64> {
    let mut command = Core::Rest.command("h2load");
    command.args(["-t1", "--warm-up-time", "1", "-D"]).arg(options.turn().as_secs().to_string());
    command.args(protocol.flags()).args(["-H", "x-forwarded-for: 203.0.113.7"]);
    let output = command.arg(format!("https://127.0.0.1:{}/", runner.port)).output();
    let output = output.context("h2load cannot be run; it comes with nghttp2-client")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = |begin: &str| text.lines().find(|line| line.starts_with(begin)).unwrap_or_default();
    let codes = line("status codes: ");
    let expected = match traffic {
        Traffic::Allowed => !codes.starts_with("status codes: 0 2xx") && codes.contains(" 0 4xx"),
        Traffic::Refused => !codes.contains(" 0 4xx"),
    };
    ensure!(expected && line("TLS Protocol").contains("1.3"), "{}: {text}", runner.name);
    let rate = line("finished in").split(", ").nth(1).and_then(|rate| rate.split(' ').next());
    rate.and_then(|rate| rate.parse().ok()).with_context(|| format!("no rate in {text}"))
}

/// Handshakes a second of a client that connects again and again.
fn handshakes(runner: &Runner, session: &str) -> anyhow::Result<f64> {
    let mut command = Core::Rest.command("openssl");
    command.args(["s_time", session, "-time", "3", "-www", "/", "-connect"]);
    let output = command.arg(format!("127.0.0.1:{}", runner.port)).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("real seconds")).context("no figure")?;
    let mut words = line.split_whitespace();
    let connections: f64 = words.next().unwrap_or_default().parse()?;
    let seconds: f64 = words.nth(2).unwrap_or_default().parse()?;
    Ok(connections / seconds)
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
