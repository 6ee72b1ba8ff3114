//! A gateway in front of an upstream.

use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::http1::{Message, Wire};
use crate::reply::Reply;
use crate::server::RedisServer;
use crate::slidegate::{Slidegate, SlidegateOptions};
use crate::tls::Certificates;
use crate::upstream::Upstream;

/// A [`Slidegate`] process with a gateway listener, and requests to it.
#[derive(Debug)]
pub struct Gateway(Slidegate);

/// The configuration of a [`Gateway`]: the keys of `[gateway]`, and the tables after it.
#[derive(Debug, Clone)]
pub struct GatewayOptions {
    program: PathBuf,
    gateway: String,
    tables: String,
}

impl Gateway {
    /// The configuration of a gateway that the given program is to serve.
    #[must_use]
    pub fn options(program: impl AsRef<Path>) -> GatewayOptions {
        let program = program.as_ref().to_owned();
        GatewayOptions { program, gateway: String::new(), tables: String::new() }
    }

    /// The address of its first TCP listener.
    #[must_use]
    pub fn listener(&self) -> SocketAddr {
        self.0.gateway()
    }

    /// A new connection to its listener.
    #[must_use]
    pub fn wire(&self) -> Wire {
        Wire::connect(self.listener())
    }

    /// The response to a `GET` on a new connection.
    pub fn get(&self, path: &str, headers: &str) -> Message {
        self.wire().get(path, headers)
    }

    /// The status of the response to a `GET` on a new connection.
    pub fn status(&self, path: &str) -> u16 {
        self.get(path, "").status()
    }

    /// The response of the decision API to a `POST` of JSON.
    pub fn post(&self, path: &str, json: &str) -> Message {
        post(self.address("decisions"), path, json)
    }

    /// The response of the admin endpoint to a `POST` of JSON.
    pub fn post_admin(&self, path: &str, json: &str) -> Message {
        post(self.admin(), path, json)
    }

    /// Everything that comes back for these bytes until the connection ends or is silent for 300 ms.
    pub fn answer_to(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut wire = self.wire();
        wire.send(bytes);
        String::from_utf8_lossy(&wire.all_for(Duration::from_millis(300))).into_owned()
    }

    /// A page of the admin endpoint.
    pub fn admin_page(&self, path: &str) -> Message {
        Wire::connect(self.admin()).get(path, "Connection: close\r\n")
    }

    /// The text of `/metrics`.
    #[must_use]
    pub fn metrics(&self) -> String {
        self.admin_page("/metrics").text()
    }

    /// The sum of a metric's samples whose labels contain the text. Panics if there is no metric of
    /// that name.
    #[must_use]
    pub fn metric(&self, name: &str, label: &str) -> f64 {
        let text = self.metrics();
        let parts = ["_bucket", "_count", "_sum"];
        let family = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {family} ")), "there is no metric {name}:\n{text}");
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let values = lines.filter(|line| line.contains(label));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

fn post(address: SocketAddr, path: &str, json: &str) -> Message {
    let mut wire = Wire::connect(address);
    let length = json.len();
    wire.send(format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{json}"
    ));
    wire.response()
}

impl From<Slidegate> for Gateway {
    fn from(slidegate: Slidegate) -> Self {
        Self(slidegate)
    }
}

impl Deref for Gateway {
    type Target = Slidegate;

    fn deref(&self) -> &Slidegate {
        &self.0
    }
}

impl GatewayOptions {
    /// Adds a key of `[gateway]`, with its value in TOML.
    #[must_use]
    pub fn key(mut self, key: &str, value: &str) -> Self {
        self.gateway += &format!("{key} = {value}\n");
        self
    }

    /// Forwards every request to this upstream.
    #[must_use]
    pub fn upstream(self, upstream: &Upstream) -> Self {
        self.key("upstream", &format!("{:?}", upstream.url()))
    }

    /// Sets `gateway.timeouts` to the keys of an inline table.
    #[must_use]
    pub fn timeouts(self, timeouts: &str) -> Self {
        self.key("timeouts", &format!("{{ {timeouts} }}"))
    }

    /// Sets `gateway.bounds` to the keys of an inline table.
    #[must_use]
    pub fn bounds(self, bounds: &str) -> Self {
        self.key("bounds", &format!("{{ {bounds} }}"))
    }

    /// Adds tables after `[gateway]`.
    #[must_use]
    pub fn tables(mut self, text: &str) -> Self {
        self.tables += text;
        self.tables.push('\n');
        self
    }

    /// Adds a route for a prefix.
    #[must_use]
    pub fn route(self, prefix: &str, upstreams: &[&Upstream]) -> Self {
        let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url()).collect();
        self.tables(&format!("[[gateway.route]]\nprefix = {prefix:?}\nupstream = {urls:?}"))
    }

    /// Adds a policy, by client address unless `keys` has `identity`. An empty quota is left out.
    #[must_use]
    pub fn policy(self, name: &str, quota: &str, keys: &str) -> Self {
        let identity = if keys.contains("identity =") { "" } else { "identity = [\"ip\"]\n" };
        let quotas = if quota.is_empty() { String::new() } else { format!("quotas = [{quota:?}]") };
        self.tables(&format!("[[policy]]\nname = {name:?}\n{identity}{quotas}\n{keys}"))
    }

    /// The configuration file. Unless set, listeners are on free ports of loopback, there are two
    /// workers, and one policy allows a million requests a second.
    #[must_use]
    pub fn text(&self) -> String {
        let listen = "listen = \"127.0.0.1:0\"\n";
        let of_gateway = if self.gateway.contains("listen =") { "" } else { listen };
        let workers = if self.gateway.contains("workers =") { "" } else { "workers = 2\n" };
        // Without any policy the server would add its default one.
        let loose = "[[policy]]\nname = \"loose\"\nquotas = [\"1000000/s\"]\n";
        let policy = if self.tables.contains("[[policy]]") { "" } else { loose };
        let (gateway, tables) = (&self.gateway, &self.tables);
        format!("[gateway]\n{of_gateway}{workers}{gateway}\n[admin]\n{listen}\n{tables}{policy}")
    }

    /// Starts it, and returns when it has logged its addresses.
    #[must_use]
    pub fn start(&self) -> Gateway {
        self.start_with(Slidegate::options(&self.program))
    }

    /// Starts it with further arguments or variables.
    #[must_use]
    pub fn start_with(&self, options: SlidegateOptions) -> Gateway {
        Gateway(options.configuration(&self.text()).start())
    }

    /// Starts it with TLS on its listener.
    #[must_use]
    pub fn start_tls(self) -> (Gateway, Certificates) {
        let options = Slidegate::options(&self.program);
        let files = options.certificates();
        let tls = format!("{{ certificate = {:?}, key = {:?} }}", files.server, files.server_key);
        (self.key("tls", &tls).start_with(options), files)
    }
}

/// The keys of ledgers in order: all but those that gateways share for other purposes.
#[must_use]
pub fn ledger_keys(redis: &RedisServer) -> Vec<String> {
    let keys = redis.command(&["KEYS", "*"]).array().into_iter().map(Reply::text);
    let mut keys: Vec<String> = keys.filter(|key| !key.contains("shared")).collect();
    keys.sort_unstable();
    keys
}
