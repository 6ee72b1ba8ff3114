//! nginx, asking with `auth_request`.

use std::process::Command;

use crate::program::Program;
use crate::site::Site;

const INSTALL: &str = "apt-get install --yes --no-install-recommends nginx-light";

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
    for mut site in [Site::new(), Site::with_token()] {
        site.adopt("nginx/nginx.conf", |text| text.replacen("http {\n", OWN_FILES, 1));
        let mut nginx = Command::new("nginx");
        nginx.arg("-p").arg(site.directory.path()).args(["-c", "nginx.conf", "-e", "errors"]);
        nginx.args(["-g", "daemon off; master_process off; pid nginx.pid;"]);
        let _nginx = Program::start(&mut nginx, INSTALL, site.proxy);
        site.check_limits();
        site.check_failing_open();
    }
}
