//! Flags of `slidegate serve`.

use slidegate::policy::Network;
use slidegate::{Name, Quota};
use slidegate_proxy::ListenAddress;
use slidegate_tower::AddressSource;

use crate::config::{LogFormat, Secret};

/// Flags, which outweigh the environment, which outweighs the file.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Flags {
    /// Where allowed requests go, such as http://127.0.0.1:3000; several are taken in turn
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Vec<String>,

    /// What each client address may spend, such as 100/min; all that are given must allow a request
    ///
    /// With policies in a file, these take the place of one policy's quotas: the only one, the one
    /// that RATE_LIMIT_POLICY names, or `default`. [default without any policy: 100/min]
    #[arg(long, value_name = "QUOTA", conflicts_with = "profile")]
    pub(crate) quota: Vec<Quota>,

    /// A ready-made quota, in place of --quota
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<Profile>,

    /// Where the gateway listens: localhost:8080, 0.0.0.0:80 or unix:/path [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Vec<ListenAddress>,

    /// Where metrics, health and the operator's API are [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDR")]
    pub(crate) admin: Vec<ListenAddress>,

    /// Where the decision API listens [default without an upstream: 127.0.0.1:8081]
    #[arg(long, value_name = "ADDR")]
    pub(crate) decisions: Vec<ListenAddress>,

    /// Count in Redis or Valkey, so that several gateways share one budget [default: in memory]
    ///
    /// Other users of this machine can see a password here; REDIS_URL hides it.
    #[arg(long, value_name = "URL")]
    pub(crate) redis: Option<Secret>,

    /// A name before all keys in Redis, for a budget that other applications on it do not share
    #[arg(long, value_name = "NAME")]
    pub(crate) namespace: Option<Name>,

    /// A network of your proxies, such as 10.0.0.0/8; their headers are believed [default: none]
    #[arg(long, value_name = "NET")]
    pub(crate) trusted_proxy: Vec<Network>,

    /// The header in which your proxies send the client's address, such as x-forwarded-for
    /// [default: peer]
    #[arg(long, value_name = "SOURCE")]
    pub(crate) client_address: Option<AddressSource>,

    /// Threads that serve the gateway's requests [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) workers: Option<u16>,

    /// How log lines look [default: auto]
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log: Option<LogFormat>,

    /// Log every request
    #[arg(long)]
    pub(crate) access_log: bool,
}

/// A ready policy for each client address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// 1000/min for each address
    Development,
    /// 200/min for each address
    Staging,
    /// 100/min for each address
    Production,
    /// 20/min for each address
    Strict,
}

impl Profile {
    pub(crate) const fn quota(self) -> Quota {
        match self {
            Self::Development => Quota::per_minute(1000),
            Self::Staging => Quota::per_minute(200),
            Self::Production => Quota::per_minute(100),
            Self::Strict => Quota::per_minute(20),
        }
    }
}
