//! The gateways that are compared, each as fast as its manual says that it can be.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use slidegate_testbed::RedisServer;

use crate::harness::{
    Ask, Core, Directory, Program, Runner, Traffic, fill, find, free_port, slidegate,
};

/// A gateway under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gateway {
    /// With `limit_req`.
    Nginx,
    /// With a stick table.
    Haproxy,
    /// With the local rate limit filter, and a bucket for each client.
    Envoy,
    /// With the middleware `rateLimit`.
    Traefik,
    /// Ours, with accounts in its own memory.
    Memory,
    /// The same, told to refuse in as few words as nginx does.
    MemoryTerse,
    /// Ours with two workers, on both processors.
    MemoryTwoWorkers,
    /// Ours, with accounts on Redis in the layout that it comes with.
    Redis,
}

impl Gateway {
    /// In the order of their turns. Those that are compared above all follow one another, so that
    /// noise hits both alike.
    pub const ALL: [Self; 8] = [
        Self::Nginx,
        Self::Memory,
        Self::MemoryTerse,
        Self::MemoryTwoWorkers,
        Self::Haproxy,
        Self::Envoy,
        Self::Traefik,
        Self::Redis,
    ];

    /// Whether it is measured in this traffic.
    pub fn is_for(self, traffic: Traffic) -> bool {
        match self {
            Self::MemoryTerse | Self::MemoryTwoWorkers => traffic == Traffic::Refused,
            Self::Envoy | Self::Traefik => traffic == Traffic::Allowed,
            Self::Nginx | Self::Haproxy | Self::Memory | Self::Redis => true,
        }
    }

    /// Whether it can be run here. `./scripts/bench` installs Envoy and Traefik where it can.
    pub fn is_installed(self) -> bool {
        match self {
            Self::Envoy => find("envoy").is_file(),
            Self::Traefik => find("traefik").is_file(),
            _ => true,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx, limit_req",
            Self::Haproxy => "HAProxy, stick table",
            Self::Envoy => "Envoy, local_ratelimit",
            Self::Traefik => "Traefik, rateLimit",
            Self::Memory => "slidegate, memory",
            Self::MemoryTerse => "slidegate, few words",
            Self::MemoryTwoWorkers => "slidegate, 2 workers",
            Self::Redis => "slidegate, Redis packed",
        }
    }

    fn template(self) -> &'static str {
        match self {
            Self::Nginx => include_str!("nginx.conf"),
            Self::Haproxy => include_str!("haproxy.cfg"),
            Self::Envoy => include_str!("envoy.yaml"),
            Self::Traefik => include_str!("traefik.yml"),
            Self::Memory | Self::MemoryTerse | Self::MemoryTwoWorkers | Self::Redis => {
                include_str!("slidegate.toml")
            }
        }
    }
}

/// What all gateways stand on.
pub struct Env<'a> {
    directory: &'a Directory,
    slidegate: PathBuf,
    redis: RedisServer,
    upstream_port: u16,
    /// The files of a certificate and its key. With them, the gateways speak TLS.
    certificate: Option<[String; 2]>,
}

impl<'a> Env<'a> {
    pub fn prepare(directory: &'a Directory) -> anyhow::Result<Self> {
        Self::in_front_of(free_port()?, directory)
    }

    /// The gateways' upstream listens there.
    pub fn in_front_of(upstream_port: u16, directory: &'a Directory) -> anyhow::Result<Self> {
        let slidegate = slidegate()?;
        let redis = RedisServer::start();
        Core::Rest.take(redis.pid())?;
        Ok(Self { directory, slidegate, redis, upstream_port, certificate: None })
    }

    /// The same over TLS 1.3, with HTTP/2 and HTTP/1.1.
    pub fn with_certificate(self, files: [String; 2]) -> Self {
        Self { certificate: Some(files), ..self }
    }

    /// The upstream itself, which has to run as long as the gateways do.
    pub fn upstream(&self) -> anyhow::Result<Runner> {
        let (name, port) = ("upstream alone", self.upstream_port);
        let blanks = [("PORT", port.to_string()), ("DIRECTORY", self.directory.to_string())];
        let config =
            self.directory.write("upstream", &fill(include_str!("upstream.conf"), &blanks))?;
        let program = Program::start(&mut nginx(Core::Rest, &config), port, self.directory)?;
        Ok(Runner { name, traffic: Traffic::Allowed, program, port, ask: Ask::Get { path: "/" } })
    }

    pub fn start(&self, gateway: Gateway, traffic: Traffic) -> anyhow::Result<Runner> {
        let (name, port) = (gateway.name(), free_port()?);
        let blanks = self.blanks(gateway, traffic, port)?;
        // Envoy and Traefik go by the extension.
        let file = format!("{gateway:?}-{traffic:?}.yaml");
        let config = self.directory.write(&file, &fill(gateway.template(), &blanks))?;
        let mut command = match gateway {
            Gateway::Nginx => nginx(Core::Tested, &config),
            Gateway::Haproxy => haproxy(&config),
            Gateway::Envoy => envoy(&config),
            Gateway::Traefik => traefik(&config, port),
            Gateway::Memory | Gateway::MemoryTerse | Gateway::Redis => {
                serve(Core::Tested, &self.slidegate, &config)
            }
            Gateway::MemoryTwoWorkers => serve(Core::Both, &self.slidegate, &config),
        };
        let program = Program::start(&mut command, port, self.directory);
        let program = program.with_context(|| format!("cannot start {name}"))?;
        Ok(Runner { name, traffic, program, port, ask: Ask::Get { path: "/" } })
    }

    /// What is filled into the configurations; none of them has all of it.
    fn blanks(
        &self,
        gateway: Gateway,
        traffic: Traffic,
        port: u16,
    ) -> anyhow::Result<Vec<(&'static str, String)>> {
        let store = match gateway {
            Gateway::Redis => format!("kind = \"redis\"\nurl = \"{}\"", self.redis.url()),
            _ => "kind = \"memory\"".to_owned(),
        };
        // The same in everybody's words. Without a burst, nginx has no two requests of a client
        // in the same millisecond.
        let (units, limit_req) = match traffic {
            // h2load is one client.
            Traffic::Allowed if self.certificate.is_some() => {
                (100_000_000, ("1000000r/s", " burst=1000000 nodelay"))
            }
            Traffic::Allowed => (600_000, ("10000r/s", " burst=10000 nodelay")),
            Traffic::Refused => (1, ("1r/m", "")),
        };
        let workers = if gateway == Gateway::MemoryTwoWorkers { "2" } else { "1" };
        let words = match gateway {
            Gateway::MemoryTerse => include_str!("slidegate-terse.toml"),
            _ => "",
        };
        let tls = self.certificate.as_ref().map_or_else(String::new, |[certificate, key]| {
            let template = match gateway {
                Gateway::Nginx => include_str!("nginx-tls.conf"),
                Gateway::Envoy => include_str!("envoy-tls.yaml"),
                _ => include_str!("slidegate-tls.toml"),
            };
            fill(template, &[("CERTIFICATE", certificate.clone()), ("KEY", key.clone())])
        });
        let ssl = if tls.is_empty() { "" } else { " ssl http2" };
        Ok(vec![
            ("TLS", tls),
            ("SSL", ssl.to_owned()),
            ("PORT", port.to_string()),
            ("UPSTREAM", self.upstream_port.to_string()),
            ("ADMIN", free_port()?.to_string()),
            ("STORE", store),
            ("TRAFFIC", traffic.name().to_owned()),
            ("UNITS", units.to_string()),
            ("RATE", limit_req.0.to_owned()),
            ("BURST", limit_req.1.to_owned()),
            ("WORKERS", workers.to_owned()),
            ("WORDS", words.to_owned()),
            ("DIRECTORY", self.directory.to_string()),
        ])
    }
}

fn nginx(core: Core, config: &Path) -> Command {
    let mut command = core.command(find("nginx"));
    command.args(["-e", "stderr", "-c"]).arg(config);
    command
}

fn haproxy(config: &Path) -> Command {
    let mut command = Core::Tested.command(find("haproxy"));
    command.args(["-db", "-f"]).arg(config);
    command
}

fn envoy(config: &Path) -> Command {
    let mut command = Core::Tested.command(find("envoy"));
    command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c"]);
    command.arg(config);
    command
}

fn traefik(config: &Path, port: u16) -> Command {
    let mut command = Core::Tested.command(find("traefik"));
    command.env("GOMAXPROCS", "1");
    command.arg(format!("--entrypoints.clients.address=127.0.0.1:{port}"));
    command.arg(format!("--providers.file.filename={}", config.display()));
    command.args(["--entrypoints.clients.forwardedheaders.insecure", "--log.level=ERROR"]);
    command.args(["--global.checknewversion=false", "--global.sendanonymoususage=false"]);
    command
}

fn serve(core: Core, slidegate: &Path, config: &Path) -> Command {
    let mut command = core.command(slidegate);
    command.args(["serve", "--config"]).arg(config);
    command
}
