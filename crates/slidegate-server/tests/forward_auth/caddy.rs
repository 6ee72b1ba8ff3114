//! Caddy, asking as its `forward_auth` does.

use std::process::{Command, Stdio};

use slidegate_testbed::Program;

use crate::proxy::Proxy;
use crate::site::Site;

const INSTALL: &str = "as root: apt-get install --yes --no-install-recommends caddy";

const FAILING_OPEN: &str = "\
\thandle_errors {
\t\t@unasked expression `{http.error.status_code} in [502, 504]`
\t\treverse_proxy @unasked 127.0.0.1:3000
\t}
";

#[test]
fn caddy_limits_as_slidegate_says() {
    let caddy = Proxy {
        row: "[Caddy](../examples/caddy/Caddyfile) | `/v1/auth`",
        start,
        with_token: &[("# header_up X-Slidegate-Token", "header_up X-Slidegate-Token")],
        failing_closed: &[(FAILING_OPEN, "")],
    };
    caddy.check();
}

fn start(site: &Site) -> Program {
    site.adopt("caddy/Caddyfile", |text| text);
    let mut caddy = Command::new("caddy");
    caddy.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]);
    caddy.current_dir(site.directory.path()).stderr(Stdio::null());
    caddy.env("HOME", site.directory.path()).env_remove("XDG_DATA_HOME");
    Program::start(&mut caddy, INSTALL, site.proxy)
}
