//! The limiters that are compared, each set to 40 in 2 s as its own documentation would.

use std::path::Path;
use std::process::Command;

use anyhow::Context;
use slidegate_testbed::RedisServer;

use super::client::Ask;
use super::servers::Servers;
use super::sources::Source;
use crate::harness::{Core, Directory, Program, fill, find, free_port, peers_directory, slidegate};

/// A limiter under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Slidegate(Store),
    Nginx,
    Haproxy,
    Envoy,
    Traefik,
    Caddy,
    ExpressRateLimit,
    RateLimiterFlexible,
    Governor,
    Throttlecrab,
    /// Written anew from its description, on Redis.
    Source(Source),
}

/// Where Slidegate keeps accounts, and how many gateways share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Store {
    Memory,
    Redis,
    TwoOnRedis,
    TwoOnRedisAsync,
}

/// A limiter that runs, with everything that it needs.
pub struct Running {
    pub ask: Ask,
    /// Connections are dealt out to these in turn.
    pub ports: Vec<u16>,
    _programs: Vec<Program>,
    _redis: Option<RedisServer>,
}

/// A call on Redis is not to fail because the machine is busy: a gateway would then count for
/// itself, which is not what is measured here.
const DEADLINE: &str = "5s";

const THROTTLE: Ask = Ask::Post {
    path: "/throttle",
    body: r#"{"key":"client","max_burst":40,"count_per_period":40,"period":2}"#,
};

impl Peer {
    /// In the order of the table.
    pub fn all() -> impl Iterator<Item = Self> {
        use Store::{Memory, Redis, TwoOnRedis, TwoOnRedisAsync};
        let ours = [Memory, Redis, TwoOnRedis, TwoOnRedisAsync].map(Self::Slidegate);
        let peers = [
            Self::Nginx,
            Self::Haproxy,
            Self::Envoy,
            Self::Traefik,
            Self::Caddy,
            Self::ExpressRateLimit,
            Self::RateLimiterFlexible,
            Self::Governor,
            Self::Throttlecrab,
        ];
        ours.into_iter().chain(peers).chain(Source::ALL.map(Self::Source))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Slidegate(Store::Memory) => "Slidegate, memory",
            Self::Slidegate(Store::Redis) => "Slidegate, Redis",
            Self::Slidegate(Store::TwoOnRedis) => "Slidegate, two gateways on one Redis",
            Self::Slidegate(Store::TwoOnRedisAsync) => "Slidegate, the same with async",
            Self::Nginx => "nginx limit_req",
            Self::Haproxy => "HAProxy stick table",
            Self::Envoy => "Envoy local_ratelimit",
            Self::Traefik => "Traefik rateLimit",
            Self::Caddy => "Caddy rate_limit",
            Self::ExpressRateLimit => "express-rate-limit",
            Self::RateLimiterFlexible => "rate-limiter-flexible",
            Self::Governor => "governor",
            Self::Throttlecrab => "throttlecrab-server",
            Self::Source(Source::S0) => "source S0, shortener in TypeScript",
            Self::Source(Source::S1) => "source S1, developer-tools API",
            Self::Source(Source::S2) => "source S2, API service",
            Self::Source(Source::S3) => "source S3, production guide",
            Self::Source(Source::S4) => "source S4, shortener in Go",
        }
    }

    /// What 40 in 2 s is in its configuration.
    pub fn setting(self) -> &'static str {
        match self {
            Self::Slidegate(Store::TwoOnRedisAsync) => {
                "`quotas = [\"40/2s\"]`, `consistency = \"async\"`"
            }
            Self::Slidegate(_) => "`quotas = [\"40/2s\"]`",
            Self::Nginx => "`rate=20r/s`, `burst=39 nodelay`",
            Self::Haproxy => "`http_req_rate(2s)`, denied if `gt 40`",
            Self::Envoy => "`token_bucket` of 40, 40 per 2 s",
            Self::Traefik => "`average: 40`, `period: 2s`, `burst: 40`",
            Self::Caddy => "`events 40`, `window 2s`",
            Self::ExpressRateLimit => "`windowMs: 2000`, `limit: 40`",
            Self::RateLimiterFlexible => "`points: 40`, `duration: 2`, memory",
            Self::Governor => "`Quota::with_period(50 ms).allow_burst(40)`",
            Self::Throttlecrab => "`max_burst` 40, `count_per_period` 40, `period` 2",
            Self::Source(Source::S0) => "pipeline: records, then counts",
            Self::Source(Source::S1) => "pipeline: counts, records; a refusal takes back its ms",
            Self::Source(Source::S2) => "counts, records; refused if the count is above 40",
            Self::Source(Source::S3) => "script: records what has room",
            Self::Source(Source::S4) => "pipeline: counts, records, in ns",
        }
    }

    /// Its version if it can be run here, or why it cannot.
    pub fn version(self) -> Result<String, String> {
        let missing = || "it is missing; `./scripts/bench exactness` installs it".to_owned();
        let program = |name: &str, argument: &str| {
            let output = Command::new(find(name)).arg(argument).output().map_err(|_| missing())?;
            let said = [output.stdout, output.stderr].concat();
            version_in(&String::from_utf8_lossy(&said)).ok_or_else(missing)
        };
        match self {
            Self::Slidegate(_) => Ok(env!("CARGO_PKG_VERSION").to_owned()),
            Self::Nginx => program("nginx", "-v"),
            Self::Haproxy => program("haproxy", "-v"),
            Self::Envoy => program("envoy", "--version"),
            Self::Traefik => program("traefik", "version"),
            Self::Caddy => {
                let modules = Command::new(find("caddy")).arg("list-modules").output();
                let modules = modules.map(|output| output.stdout).unwrap_or_default();
                let has = String::from_utf8_lossy(&modules).contains("http.handlers.rate_limit");
                let absent = "its limiter is a module to be compiled in, and no caddy here has it";
                if has { program("caddy", "version") } else { Err(absent.to_owned()) }
            }
            Self::ExpressRateLimit | Self::RateLimiterFlexible => {
                package_version(self.name()).ok_or_else(missing)
            }
            Self::Governor => locked_version("governor").ok_or_else(missing),
            Self::Throttlecrab => program("throttlecrab-server", "--version"),
            Self::Source(_) => program("redis-server", "--version").map(|it| format!("Redis {it}")),
        }
    }

    pub fn start(self, env: &Env) -> anyhow::Result<Running> {
        match self {
            Self::Slidegate(store) => env.slidegate(store),
            Self::Nginx => env.program(include_str!("nginx.conf"), |config, _| {
                let mut command = Core::Tested.command(find("nginx"));
                command.args(["-e", "stderr", "-c"]).arg(config);
                command
            }),
            Self::Haproxy => env.program(include_str!("haproxy.cfg"), |config, _| {
                let mut command = Core::Tested.command(find("haproxy"));
                command.args(["-db", "-f"]).arg(config);
                command
            }),
            Self::Envoy => env.program(include_str!("envoy.yaml"), |config, _| {
                let mut command = Core::Tested.command(find("envoy"));
                command.args(["--concurrency", "1", "--disable-hot-restart"]);
                command.args(["--log-level", "error", "-c"]).arg(config);
                command
            }),
            Self::Traefik => env.program(include_str!("traefik.yml"), |config, port| {
                let mut command = Core::Tested.command(find("traefik"));
                command.arg(format!("--entrypoints.clients.address=127.0.0.1:{port}"));
                command.arg(format!("--providers.file.filename={}", config.display()));
                command.args(["--log.level=ERROR", "--global.checknewversion=false"]);
                command.arg("--global.sendanonymoususage=false");
                command
            }),
            Self::Caddy => env.program(include_str!("Caddyfile"), |config, _| {
                let mut command = Core::Tested.command(find("caddy"));
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(config);
                command
            }),
            Self::ExpressRateLimit | Self::RateLimiterFlexible => env.node(self.name()),
            Self::Governor => Ok(Running::of(Ask::Get, env.servers.governor()?)),
            Self::Throttlecrab => {
                let port = free_port()?;
                let mut command = Core::Tested.command(find("throttlecrab-server"));
                command.args(["--http", "--http-host", "127.0.0.1"]);
                command.args(["--http-port", &port.to_string()]);
                let program = Program::start(&mut command, port, env.directory)?;
                Ok(Running { _programs: vec![program], ..Running::of(THROTTLE, port) })
            }
            Self::Source(source) => {
                let redis = RedisServer::start();
                let port = env.servers.source(source, &redis.url())?;
                Ok(Running { _redis: Some(redis), ..Running::of(Ask::Get, port) })
            }
        }
    }
}

impl Running {
    fn of(ask: Ask, port: u16) -> Self {
        Self { ask, ports: vec![port], _programs: Vec::new(), _redis: None }
    }
}

/// What the limiters stand on.
pub struct Env<'a> {
    directory: &'a Directory,
    servers: Servers,
    upstream_port: u16,
}

impl<'a> Env<'a> {
    pub fn prepare(directory: &'a Directory) -> anyhow::Result<Self> {
        let servers = Servers::new()?;
        let upstream_port = servers.upstream()?;
        Ok(Self { directory, servers, upstream_port })
    }

    /// A program in front of the upstream, with its configuration in a file.
    fn program(
        &self,
        template: &str,
        command: impl Fn(&Path, u16) -> Command,
    ) -> anyhow::Result<Running> {
        let port = free_port()?;
        let program = self.configured(template, &[], port, command)?;
        Ok(Running { _programs: vec![program], ..Running::of(Ask::Get, port) })
    }

    fn configured(
        &self,
        template: &str,
        own: &[(&str, String)],
        port: u16,
        command: impl Fn(&Path, u16) -> Command,
    ) -> anyhow::Result<Program> {
        let common = [
            ("PORT", port.to_string()),
            ("UPSTREAM", self.upstream_port.to_string()),
            ("DIRECTORY", self.directory.to_string()),
        ];
        // Envoy and Traefik go by the extension.
        let text = fill(template, &[&common, own].concat());
        let config = self.directory.write(&format!("{port}.yaml"), &text)?;
        Program::start(&mut command(&config, port), port, self.directory)
    }

    fn slidegate(&self, store: Store) -> anyhow::Result<Running> {
        let redis = (store != Store::Memory).then(RedisServer::start);
        let gateways = match store {
            Store::Memory | Store::Redis => 1,
            Store::TwoOnRedis | Store::TwoOnRedisAsync => 2,
        };
        let on_redis =
            |redis: &RedisServer| format!("url = \"{}\"\ndeadline = \"{DEADLINE}\"", redis.url());
        let consistency = match store {
            Store::TwoOnRedisAsync => "consistency = \"async\"",
            Store::Memory | Store::Redis | Store::TwoOnRedis => "",
        };
        let binary = slidegate()?;
        let (mut ports, mut programs) = (Vec::new(), Vec::new());
        for _ in 0..gateways {
            let port = free_port()?;
            let own = [
                ("ADMIN", free_port()?.to_string()),
                ("STORE", redis.as_ref().map_or("kind = \"memory\"".to_owned(), on_redis)),
                ("CONSISTENCY", consistency.to_owned()),
            ];
            programs.push(self.configured(
                include_str!("slidegate.toml"),
                &own,
                port,
                |config, _| {
                    let mut command = Core::Tested.command(&binary);
                    command.args(["serve", "--config"]).arg(config);
                    command
                },
            )?);
            ports.push(port);
        }
        Ok(Running { ask: Ask::Get, ports, _programs: programs, _redis: redis })
    }

    fn node(&self, name: &str) -> anyhow::Result<Running> {
        let port = free_port()?;
        let script = self.directory.write("server.cjs", include_str!("node/server.cjs"))?;
        let modules = peers_directory().context("we are in a directory")?.join("node/node_modules");
        let mut command = Core::Tested.command(find("node"));
        command.env("NODE_PATH", modules).env("NODE_ENV", "production");
        command.arg(script).args([name, &port.to_string()]);
        let program = Program::start(&mut command, port, self.directory)?;
        Ok(Running { _programs: vec![program], ..Running::of(Ask::Get, port) })
    }
}

/// The first thing in the text that looks like a version: three numbers with dots.
fn version_in(text: &str) -> Option<String> {
    let mut words = text.split(|c: char| c != '.' && !c.is_ascii_alphanumeric());
    let is_version = |word: &&str| {
        let numbers = word.trim_start_matches('v').split('.');
        numbers.clone().count() == 3 && numbers.into_iter().all(|it| it.parse::<u32>().is_ok())
    };
    words.find(is_version).map(|word| word.trim_start_matches('v').to_owned())
}

/// Of a package that npm has installed.
fn package_version(name: &str) -> Option<String> {
    let file = peers_directory()?.join("node/node_modules").join(name).join("package.json");
    let package: serde_json::Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    package["version"].as_str().map(str::to_owned)
}

/// Of a crate that is linked into this program.
fn locked_version(name: &str) -> Option<String> {
    let lock = include_str!("../../../Cargo.lock");
    let (_, after) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    after.split_once('"').map(|(version, _)| version.to_owned())
}
