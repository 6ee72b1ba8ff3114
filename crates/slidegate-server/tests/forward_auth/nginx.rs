//! nginx, asking with `auth_request`.

use std::process::Command;

use crate::program::Program;
use crate::proxy::Proxy;
use crate::site::Site;

const INSTALL: &str = "as root: apt-get install --yes --no-install-recommends nginx-light";

/// Debian's nginx would write to directories that are not everybody's.
const OWN_FILES: &str = "http {
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
";

#[test]
fn nginx_limits_as_slidegate_says() {
    let nginx = Proxy {
        row: "[nginx](../examples/nginx/nginx.conf) | `/v1/auth/nginx`",
        start,
        with_token: &[(
            "# proxy_set_header X-Slidegate-Token",
            "proxy_set_header X-Slidegate-Token",
        )],
        failing_closed: &[("error_page 502 504 = @unlimited;", "")],
    };
    nginx.check();
}

fn start(site: &Site) -> Program {
    site.adopt("nginx/nginx.conf", |text| text.replacen("http {\n", OWN_FILES, 1));
    let mut nginx = Command::new("nginx");
    nginx.arg("-p").arg(site.directory.path()).args(["-c", "nginx.conf", "-e", "errors"]);
    nginx.args(["-g", "daemon off; master_process off; pid nginx.pid;"]);
    Program::start(&mut nginx, INSTALL, site.proxy)
}
