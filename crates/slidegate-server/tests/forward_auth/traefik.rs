//! Traefik, asking with `forwardAuth`.

use std::process::Command;

use slidegate_testbed::{Program, tool, wait_until};

use crate::proxy::Proxy;
use crate::site::Site;

#[test]
fn traefik_limits_as_slidegate_says() {
    let traefik = Proxy {
        row: "[Traefik](../examples/traefik/dynamic.yml) | `/v1/auth`",
        start,
        with_token: &[
            ("      middlewares: [slidegate]\n", ""),
            ("# middlewares: [slidegate-token", "middlewares: [slidegate-token"),
        ],
        failing_closed: &[],
    };
    traefik.check();
}

fn start(site: &Site) -> Program {
    site.adopt("traefik/traefik.yml", |text| text);
    site.adopt("traefik/dynamic.yml", |text| text);
    let mut traefik = Command::new(tool("bin/traefik"));
    traefik.arg("--configFile=traefik.yml").current_dir(site.directory.path());
    let program = Program::start(&mut traefik, "scripts/tools", site.proxy);
    // It listens before it has read what to do.
    wait_until("Traefik to have routes", || site.send("GET", "/", &[]).status() != 404);
    site.application.seen();
    program
}
