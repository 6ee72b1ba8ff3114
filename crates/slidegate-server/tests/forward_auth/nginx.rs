//! nginx, asking with `auth_request`.

use std::process::Command;

use slidegate_testbed::Program;
use slidegate_testbed::program::send_raw;

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

#[test]
fn a_refusal_of_several_lines_arrives_whole() {
    let mut site = Site::new();
    let _nginx = start(&site);
    assert_eq!(site.send("GET", "/lines", &[]).status(), 200);
    let refused = site.send("GET", "/lines", &[]);
    assert_eq!(refused.status(), 429);
    assert_eq!(refused.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(refused.text().unwrap(), "two\nlines\n");
    let refused = site.send("HEAD", "/lines", &[]);
    assert_eq!((refused.status().as_u16(), refused.text().unwrap()), (429, String::new()));
    let refused = site.request("POST", "/lines").body("a body that is not read").send().unwrap();
    assert_eq!(refused.status(), 429);
    assert_eq!(site.send("GET", "/long", &[]).status(), 200);
    let refused = site.send("GET", "/long", &[]);
    assert_eq!((refused.status().as_u16(), refused.text().unwrap().len()), (429, 10_000));
    site.stop_slidegate();
    assert_eq!(site.send("GET", "/lines", &[]).status(), 200, "as without Slidegate");
}

/// nginx passes a fragment on, to Slidegate and to the application, which cuts it.
#[test]
fn no_spelling_of_a_path_evades_a_policy() {
    let site = Site::new();
    let _nginx = start(&site);
    let status = |path| send_raw(site.proxy, "POST", path, "").split(' ').nth(1).map(str::to_owned);
    for path in ["/login#x", "/LOGIN"] {
        assert_eq!(status(path).as_deref(), Some("200"), "{path}");
    }
    for path in ["/login", "/login#x", "/login#/../x", "/Login/", "/x%2f..%2flogin", "//login;x#y"]
    {
        assert_eq!(status(path).as_deref(), Some("429"), "{path}");
    }
    assert_eq!(site.application.seen().len(), 2);
}
