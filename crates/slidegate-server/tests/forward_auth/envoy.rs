//! Envoy, asking with `ext_authz` over HTTP.

use std::process::{Command, Stdio};

use slidegate_testbed::{Program, tool};

use crate::proxy::Proxy;
use crate::site::Site;

#[test]
fn envoy_limits_as_slidegate_says() {
    let envoy = Proxy {
        row: "[Envoy](../examples/envoy/envoy.yaml) | `/v1/auth/envoy`",
        start,
        with_token: &[
            ("# authorization_request:", "authorization_request:"),
            ("#   headers_to_add:", "  headers_to_add:"),
            ("#     - { key: x-slidegate-token", "    - { key: x-slidegate-token"),
        ],
        failing_closed: &[("failure_mode_allow: true", "failure_mode_allow: false")],
    };
    envoy.check();
}

fn start(site: &Site) -> Program {
    site.adopt("envoy/envoy.yaml", |text| text);
    let mut envoy = Command::new(tool("envoy/_bin/envoy"));
    envoy.args(["-c", "envoy.yaml", "--concurrency", "1", "--disable-hot-restart"]);
    envoy.current_dir(site.directory.path()).stderr(Stdio::null());
    Program::start(&mut envoy, "scripts/tools", site.proxy)
}
