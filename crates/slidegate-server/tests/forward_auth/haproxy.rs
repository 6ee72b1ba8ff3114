//! HAProxy, asking with Lua.

use std::process::Command;

use slidegate_testbed::Program;

use crate::proxy::Proxy;
use crate::site::Site;

const INSTALL: &str = "as root: apt-get install --yes --no-install-recommends haproxy";

#[test]
fn haproxy_limits_as_slidegate_says() {
    let haproxy = Proxy {
        row: "[HAProxy](../examples/haproxy/haproxy.cfg) | `/v1/auth`",
        start,
        with_token: &[("local token = nil -- ", "local token = ")],
        failing_closed: &[("on_failure = \"open\"", "on_failure = \"closed\"")],
    };
    haproxy.check();
}

fn start(site: &Site) -> Program {
    site.adopt("haproxy/haproxy.cfg", |text| text);
    site.adopt("haproxy/slidegate.lua", |text| text);
    let mut haproxy = Command::new("haproxy");
    haproxy.args(["-f", "haproxy.cfg"]).current_dir(site.directory.path());
    Program::start(&mut haproxy, INSTALL, site.proxy)
}
