//! A gateway in front of an upstream.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use slidegate_testbed::{Certificates, Slidegate, SlidegateOptions};

use super::place::Place;
use super::upstream::Upstream;
use super::wire::{Message, Wire};

/// A running gateway.
pub(crate) struct Front(Slidegate);

/// What a gateway is to be told: the keys of `[gateway]`, and what comes after them.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    gateway: String,
    rest: String,
}

/// A gateway in front of one upstream that limits nothing.
pub(crate) fn front(upstream: &Upstream) -> Front {
    gateway(upstream).start()
}

/// The setup of a gateway in front of one upstream.
pub(crate) fn gateway(upstream: &Upstream) -> Setup {
    Setup::new().key("upstream", &format!("{:?}", upstream.url()))
}

impl Setup {
    pub(crate) fn new() -> Self {
        Self { gateway: String::new(), rest: String::new() }
    }

    /// A key of `[gateway]`, with its value in TOML.
    pub(crate) fn key(mut self, key: &str, value: &str) -> Self {
        self.gateway += &format!("{key} = {value}\n");
        self
    }

    pub(crate) fn timeouts(self, timeouts: &str) -> Self {
        self.key("timeouts", &format!("{{ {timeouts} }}"))
    }

    pub(crate) fn bounds(self, bounds: &str) -> Self {
        self.key("bounds", &format!("{{ {bounds} }}"))
    }

    /// Tables after `[gateway]`.
    pub(crate) fn tables(mut self, text: &str) -> Self {
        self.rest += text;
        self.rest.push('\n');
        self
    }

    /// Another route for a prefix.
    pub(crate) fn route(self, prefix: &str, upstreams: &[&Upstream]) -> Self {
        let urls: Vec<String> = upstreams.iter().map(|upstream| upstream.url()).collect();
        self.tables(&format!("[[gateway.route]]\nprefix = {prefix:?}\nupstream = {urls:?}"))
    }

    /// A policy for each client address, or as said by further keys.
    pub(crate) fn policy(self, name: &str, quota: &str, keys: &str) -> Self {
        let identity = if keys.contains("identity =") { "" } else { "identity = [\"ip\"]\n" };
        let quotas = if quota.is_empty() { String::new() } else { format!("quotas = [{quota:?}]") };
        self.tables(&format!("[[policy]]\nname = {name:?}\n{identity}{quotas}\n{keys}"))
    }

    pub(crate) fn text(&self) -> String {
        let listen = "listen = \"127.0.0.1:0\"\n";
        let of_gateway = if self.gateway.contains("listen =") { "" } else { listen };
        let workers = if self.gateway.contains("workers =") { "" } else { "workers = 2\n" };
        // Without any policy there would be one all the same.
        let loose = "[[policy]]\nname = \"loose\"\nquotas = [\"1000000/s\"]\n";
        let policy = if self.rest.contains("[[policy]]") { "" } else { loose };
        let (gateway, rest) = (&self.gateway, &self.rest);
        format!("[gateway]\n{of_gateway}{workers}{gateway}\n[admin]\n{listen}\n{rest}{policy}")
    }

    pub(crate) fn start(&self) -> Front {
        self.start_with(options())
    }

    pub(crate) fn start_with(&self, options: SlidegateOptions) -> Front {
        Front(options.configuration(&self.text()).start())
    }

    /// Starts it with TLS on its listener.
    pub(crate) fn start_tls(self) -> (Front, Certificates) {
        let options = options();
        let files = options.certificates();
        let tls = format!("{{ certificate = {:?}, key = {:?} }}", files.server, files.server_key);
        (self.key("tls", &tls).start_with(options), files)
    }
}

/// The program under test.
pub(crate) fn options() -> SlidegateOptions {
    Slidegate::options(env!("CARGO_BIN_EXE_slidegate"))
}

/// The same after lines of a shell, such as `ulimit -n 200`, by a script in this place.
pub(crate) fn options_after(place: &Place, lines: &str) -> SlidegateOptions {
    let (script, program) = (place.path("program"), env!("CARGO_BIN_EXE_slidegate"));
    fs::write(&script, format!("#!/bin/sh\n{lines}\nexec {program} \"$@\"\n")).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    Slidegate::options(&script)
}

impl Front {
    pub(crate) fn of(slidegate: Slidegate) -> Self {
        Self(slidegate)
    }

    /// A new connection to the gateway.
    pub(crate) fn wire(&self) -> Wire {
        Wire::connect(self.gateway())
    }

    /// The response to a request on a connection of its own.
    pub(crate) fn get(&self, path: &str, headers: &str) -> Message {
        self.wire().get(path, headers)
    }

    /// The response of the decision service to JSON.
    pub(crate) fn post(&self, path: &str, json: &str) -> Message {
        let mut wire = Wire::connect(self.address("decisions"));
        let length = json.len();
        wire.send(format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n{json}"
        ));
        wire.response()
    }

    pub(crate) fn status(&self, path: &str) -> u16 {
        self.get(path, "").status()
    }

    /// What becomes of bytes: the responses as text, until the connection ends or is silent.
    pub(crate) fn answer_to(&self, bytes: impl AsRef<[u8]>) -> String {
        let mut wire = self.wire();
        wire.send(bytes);
        String::from_utf8_lossy(&wire.all_for(Duration::from_millis(300))).into_owned()
    }

    /// A page of the admin endpoint.
    pub(crate) fn admin_page(&self, path: &str) -> Message {
        Wire::connect(self.admin()).get(path, "Connection: close\r\n")
    }

    pub(crate) fn metrics(&self) -> String {
        self.admin_page("/metrics").text()
    }

    /// The sum of a metric over all its labels that contain the text.
    pub(crate) fn metric(&self, name: &str, label: &str) -> f64 {
        let text = self.metrics();
        let lines = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        let values = lines.filter(|line| line.contains(label));
        values.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }
}

impl Deref for Front {
    type Target = Slidegate;

    fn deref(&self) -> &Slidegate {
        &self.0
    }
}
