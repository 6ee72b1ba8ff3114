//! Caddy, asking as its `forward_auth` does.

use std::process::{Command, Stdio};

use crate::program::Program;
use crate::site::Site;

const INSTALL: &str = "apt-get install --yes --no-install-recommends caddy";

#[test]
fn caddy_limits_as_slidegate_says() {
    for mut site in [Site::new(), Site::with_token()] {
        site.adopt("caddy/Caddyfile", |text| text);
        let mut caddy = Command::new("caddy");
        caddy.args(["run", "--config", "Caddyfile", "--adapter", "caddyfile"]);
        caddy.current_dir(site.directory.path()).stderr(Stdio::null());
        caddy.env("HOME", site.directory.path()).env_remove("XDG_DATA_HOME");
        let _caddy = Program::start(&mut caddy, INSTALL, site.proxy);
        site.check_limits();
        site.check_failing_open();
    }
}
