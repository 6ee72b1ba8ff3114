//! HAProxy, asking with Lua.

use std::process::Command;

use crate::program::Program;
use crate::site::Site;

const INSTALL: &str = "apt-get install --yes --no-install-recommends haproxy";

#[test]
fn haproxy_limits_as_slidegate_says() {
    for mut site in [Site::new(), Site::with_token()] {
        site.adopt("haproxy/haproxy.cfg", |text| text);
        site.adopt("haproxy/slidegate.lua", |text| text);
        let mut haproxy = Command::new("haproxy");
        haproxy.args(["-f", "haproxy.cfg"]).current_dir(site.directory.path());
        let _haproxy = Program::start(&mut haproxy, INSTALL, site.proxy);
        site.check_limits();
        site.check_failing_open();
    }
}
