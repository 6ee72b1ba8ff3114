//! The Redis URL.

use std::fmt;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

/// The address of Redis, parsed from a URL. `Display` and `Debug` omit passwords.
///
/// | form | topology |
/// |---|---|
/// | `redis://user:password@host:6379/0` | one server |
/// | `rediss://…` | one server over TLS |
/// | `unix:///run/redis.sock?db=0` | one server on a Unix socket |
/// | `redis-sentinel://user:password@host1:26379,host2:26379/master/0` | the server that the sentinels name `master` |
/// | `redis-cluster://user:password@host1:6379,host2:6379` | a cluster, found through any of its nodes |
///
/// `rediss-sentinel` and `rediss-cluster` use TLS. Credentials for the sentinels are set with
/// `?sentinel_user=…&sentinel_password=…`.
#[derive(Clone)]
pub struct Address {
    pub(crate) topology: Topology,
    pub(crate) is_tls: bool,
}

#[derive(Clone)]
pub(crate) enum Topology {
    Standalone(ConnectionInfo),
    Sentinel(Sentinels),
    Cluster(Vec<ConnectionInfo>),
}

#[derive(Clone)]
pub(crate) struct Sentinels {
    pub(crate) nodes: Vec<ConnectionAddr>,
    pub(crate) master: String,
    /// Credentials for the master, whose address comes from the sentinels.
    pub(crate) server: ConnectionInfo,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
}

impl Address {
    pub(crate) fn is_one_server(&self) -> bool {
        matches!(self.topology, Topology::Standalone(_))
    }

    pub(crate) fn is_cluster(&self) -> bool {
        matches!(self.topology, Topology::Cluster(_))
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(url: &str) -> Result<Self, AddressError> {
        let (scheme, rest) = url.split_once("://").ok_or(AddressError::NoScheme)?;
        let redis_scheme = scheme.replacen("valkey", "redis", 1);
        let (protocol, kind) = redis_scheme.split_once('-').unwrap_or((&redis_scheme, ""));
        let topology = match (protocol, kind) {
            ("redis" | "rediss" | "unix" | "redis+unix", "") => {
                Topology::Standalone(connection_info(url)?)
            }
            ("redis" | "rediss", "sentinel") => Topology::Sentinel(sentinels(protocol, rest)?),
            ("redis" | "rediss", "cluster") => Topology::Cluster(nodes(protocol, rest)?),
            _ => return Err(AddressError::UnknownScheme(scheme.to_owned())),
        };
        Ok(Self { topology, is_tls: protocol == "rediss" })
    }
}

/// A URL with several hosts: the part before them, the hosts, and the part after.
struct Hosts<'a> {
    login: &'a str,
    hosts: Vec<&'a str>,
    path: &'a str,
    query: &'a str,
}

impl<'a> Hosts<'a> {
    fn parse(rest: &'a str) -> Result<Self, AddressError> {
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        // The text before the last @ may be a password, even with a slash in it.
        if path.contains('@') {
            return Err(AddressError::Slash);
        }
        let hosts_at = authority.rfind('@').map_or(0, |at| at + 1);
        let (login, hosts) = authority.split_at(hosts_at);
        let hosts: Vec<&str> = hosts.split(',').filter(|host| !host.is_empty()).collect();
        if hosts.is_empty() {
            Err(AddressError::NoHost)
        } else {
            Ok(Self { login, hosts, path, query })
        }
    }

    fn query(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(key, _)| *key == name).map(|(_, value)| percent_decoded(value))
    }
}

fn nodes(scheme: &str, rest: &str) -> Result<Vec<ConnectionInfo>, AddressError> {
    let Hosts { login, hosts, path, .. } = Hosts::parse(rest)?;
    if !path.is_empty() && path != "0" {
        return Err(AddressError::ClusterDatabase(path.to_owned()));
    }
    hosts.iter().map(|host| connection_info(&format!("{scheme}://{login}{host}"))).collect()
}

fn sentinels(scheme: &str, rest: &str) -> Result<Sentinels, AddressError> {
    let hosts = Hosts::parse(rest)?;
    let (master, db) = hosts.path.split_once('/').unwrap_or((hosts.path, "0"));
    if master.is_empty() {
        return Err(AddressError::NoMaster);
    }
    let with_port =
        |host: &str| if has_port(host) { host.to_owned() } else { format!("{host}:26379") };
    let node = |host: &&str| {
        Ok(connection_info(&format!("{scheme}://{}", with_port(host)))?.addr().clone())
    };
    Ok(Sentinels {
        nodes: hosts.hosts.iter().map(node).collect::<Result<_, AddressError>>()?,
        master: percent_decoded(master),
        server: connection_info(&format!("{scheme}://{}localhost/{db}", hosts.login))?,
        user: hosts.query("sentinel_user"),
        password: hosts.query("sentinel_password"),
    })
}

/// Whether a host has a port. The colons of an IPv6 address are inside brackets.
fn has_port(host: &str) -> bool {
    host.rsplit_once(']').map_or(host, |(_, after)| after).contains(':')
}

fn connection_info(url: &str) -> Result<ConnectionInfo, AddressError> {
    url.into_connection_info().map_err(|error| AddressError::Malformed(error.to_string()))
}

fn percent_decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |nodes: &mut dyn Iterator<Item = &ConnectionAddr>| {
            nodes.map(ToString::to_string).collect::<Vec<_>>().join(",")
        };
        match &self.topology {
            Topology::Standalone(info) => write!(f, "{}", info.addr()),
            Topology::Sentinel(sentinels) => {
                write!(f, "{} by sentinels {}", sentinels.master, list(&mut sentinels.nodes.iter()))
            }
            Topology::Cluster(nodes) => {
                write!(f, "cluster {}", list(&mut nodes.iter().map(ConnectionInfo::addr)))
            }
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// Why a Redis URL is invalid. The message never repeats the URL, which may contain a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// There is no scheme.
    #[error("the Redis URL has no scheme: expected something like redis://127.0.0.1:6379")]
    NoScheme,
    /// The scheme is not a Redis scheme.
    #[error(
        "the Redis URL has the scheme {0:?}: expected redis, rediss, unix, redis-sentinel, \
         rediss-sentinel, redis-cluster or rediss-cluster"
    )]
    UnknownScheme(String),
    /// There is no host.
    #[error(
        "the Redis URL has no host: expected something like redis-cluster://10.0.0.1:6379,10.0.0.2:6379"
    )]
    NoHost,
    /// The name of the master is missing.
    #[error(
        "the Redis URL has no master's name: expected something like redis-sentinel://10.0.0.1:26379/mymaster"
    )]
    NoMaster,
    /// A user or a password contains a slash.
    #[error("the Redis URL has a slash before its last @: in a password, write %2F")]
    Slash,
    /// A cluster has only database 0.
    #[error("the Redis URL asks for database {0:?} of a cluster, which only has 0")]
    ClusterDatabase(String),
    /// The URL is malformed.
    #[error("the Redis URL cannot be read: {0}")]
    Malformed(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_url_is_read_and_shows_no_password() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379", "127.0.0.1:6379"),
            ("redis://me:hunter2@10.0.0.1:7000/3", "10.0.0.1:7000"),
            ("rediss://:hunter2@redis.example.com", "redis.example.com:6379"),
            ("unix:///run/redis.sock?pass=hunter2&db=2", "/run/redis.sock"),
            (
                "redis-sentinel://me:hunter2@a:1,b/mymaster/2?sentinel_password=hunter2",
                "mymaster by sentinels a:1,b:26379",
            ),
            ("rediss-sentinel://[::1]:5,[::2]/m", "m by sentinels ::1:5,::2:26379"),
            ("redis-cluster://:hunter2@a:1,b:2", "cluster a:1,b:2"),
        ] {
            let address: Address = url.parse().unwrap();
            assert_eq!(address.to_string(), shown, "{url}");
            assert!(!format!("{address:?}").contains("hunter2"));
        }
    }

    #[test]
    fn bad_urls_say_what_was_expected_and_show_no_password() {
        for (url, part) in [
            ("localhost:6379", "no scheme"),
            ("http://:hunter2@localhost", "\"http\""),
            ("redis-cluster://:hunter2@", "no host"),
            ("redis-sentinel://:hunter2@a:1", "master's name"),
            ("redis-cluster://:hunter2@a:1/4", "\"4\""),
            ("redis-cluster://:ab/hunter2@a:1", "%2F"),
            ("redis-sentinel://me:12/hunter2@a:1/m", "%2F"),
            ("redis://:hunter2@host:notaport", "cannot be read"),
            ("redis://:hunter2@host/notadb", "cannot be read"),
        ] {
            let error = url.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("hunter2"), "{url}: {error}");
        }
    }

    #[test]
    fn urls_keep_user_and_password() {
        let address: Address =
            "redis-sentinel://me:p%40ss@a/m/2?sentinel_password=s%3D1".parse().unwrap();
        let Topology::Sentinel(sentinels) = address.topology else { panic!("sentinels") };
        assert_eq!(sentinels.server.redis_settings().password(), Some("p@ss"));
        assert_eq!(sentinels.server.redis_settings().db(), 2);
        assert_eq!(sentinels.password.as_deref(), Some("s=1"));
    }
}
