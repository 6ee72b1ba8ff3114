//! How a server differs from the plain one, and the configuration file that follows.

use std::path::Path;

use crate::clock::ManualTime;
use crate::flavour::Flavour;
use crate::server::RedisServer;
use crate::tls::Certificates;

/// Changes to the plain server of [`RedisServer::start`].
#[derive(Debug, Clone, Default)]
pub struct ServerOptions {
    pub(crate) flavour: Flavour,
    pub(crate) password: Option<String>,
    pub(crate) time: Option<ManualTime>,
    pub(crate) transport: Transport,
    pub(crate) certificates: Option<Certificates>,
    pub(crate) role: Role,
    pub(crate) lines: Vec<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Transport {
    #[default]
    Tcp,
    Tls,
    MutualTls,
    UnixOnly,
}

impl Transport {
    pub(crate) fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::MutualTls)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Single,
    ClusterNode,
    Sentinel,
}

/// The ports of one attempt to start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ports {
    pub(crate) clients: u16,
    pub(crate) cluster_bus: u16,
}

impl ServerOptions {
    /// Starts the server and returns when it serves commands.
    #[must_use]
    pub fn start(self) -> RedisServer {
        RedisServer::start_with(self)
    }

    /// Asks clients for a password, which is of letters and digits so that it fits into an URL.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        assert!(password.bytes().all(|byte| byte.is_ascii_alphanumeric()), "letters and digits");
        self.password = Some(password.to_owned());
        // For the server's own connection to a primary.
        self.line(&format!("requirepass {password}")).line(&format!("masterauth {password}"))
    }

    /// Lets the server live by this clock.
    #[must_use]
    pub fn time(mut self, time: &ManualTime) -> Self {
        self.time = Some(time.clone());
        // That thread sleeps until a time of the clock, by real time: in the past it would spin.
        self.line("jemalloc-bg-thread no")
    }

    /// Speaks TLS on the port, to any client.
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.transport = Transport::Tls;
        self
    }

    /// Speaks TLS on the port, to clients with a certificate of the server's authority.
    ///
    /// The certificates are valid from the real time on, so this does not go with a `ManualTime`.
    #[must_use]
    pub fn mutual_tls(mut self) -> Self {
        self.transport = Transport::MutualTls;
        self
    }

    /// Listens on the Unix socket only.
    #[must_use]
    pub fn unix_only(mut self) -> Self {
        self.transport = Transport::UnixOnly;
        self
    }

    /// Keeps what was written over a kill: every write is on disk before its reply.
    #[must_use]
    pub fn appendonly(self) -> Self {
        self.line("appendonly yes").line("appendfsync always")
    }

    /// Adds a line to the configuration file. It wins over what was set before.
    #[must_use]
    pub fn line(mut self, line: &str) -> Self {
        self.lines.push(line.to_owned());
        self
    }

    /// Has all servers of these options share an authority, if they speak TLS.
    pub(crate) fn in_a_group(mut self) -> Self {
        if self.transport.is_tls() {
            self.certificates = Some(Certificates::new());
        }
        self
    }

    pub(crate) fn role(mut self, role: Role) -> Self {
        self.role = role;
        self
    }

    pub(crate) fn configuration(
        &self,
        ports: Ports,
        socket: &Path,
        certificates: Option<&Certificates>,
    ) -> String {
        let mut lines = vec![
            "bind 127.0.0.1".to_owned(),
            format!("unixsocket {socket:?}"),
            "save \"\"".to_owned(),
            // A replica's first copy otherwise waits 5 s for other replicas to join in.
            "repl-diskless-sync-delay 0".to_owned(),
        ];
        lines.extend(self.transport_lines(ports, certificates));
        if self.role == Role::ClusterNode {
            lines.push("cluster-enabled yes".to_owned());
            lines.push(format!("cluster-port {}", ports.cluster_bus));
        }
        lines.extend(self.lines.iter().cloned());
        lines.join("\n") + "\n"
    }

    fn transport_lines(&self, ports: Ports, certificates: Option<&Certificates>) -> Vec<String> {
        let port = ports.clients;
        let Some(files) = certificates else {
            let port = if self.transport == Transport::UnixOnly { 0 } else { port };
            return vec![format!("port {port}")];
        };
        let clients = if self.transport == Transport::MutualTls { "yes" } else { "no" };
        vec![
            "port 0".to_owned(),
            format!("tls-port {port}"),
            format!("tls-ca-cert-file {:?}", files.ca),
            format!("tls-cert-file {:?}", files.server),
            format!("tls-key-file {:?}", files.server_key),
            format!("tls-auth-clients {clients}"),
            "tls-replication yes".to_owned(),
            "tls-cluster yes".to_owned(),
        ]
    }
}
