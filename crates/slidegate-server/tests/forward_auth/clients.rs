//! The packages for Node, Python and Go, in real applications of every framework that they support.

use std::fs::File;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{fs, thread};

use reqwest::blocking::{Client, Response};
use slidegate_testbed::program::{free_address, send_raw};
use slidegate_testbed::{Program, wait_until};

use crate::application::Application;
use crate::packages::{
    GO, NODE, NodePackage, PYTHON, PythonPackage, build_go, client, go, succeed,
};
use crate::site::{Site, TOKEN, header};

/// Far more than an answer takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(2);

fn get(address: SocketAddr, path: &str, user: &str) -> Response {
    Client::new().get(format!("http://{address}{path}")).header("x-user", user).send().unwrap()
}

/// Starts an application that has, for each framework, a port on which it fails open and one on
/// which it fails closed, and checks all of them.
fn check(frameworks: &[&str], command: &mut Command, install: &str) {
    let mut site = Site::with_token(&[]);
    let stderr = site.directory.write("stderr", "");
    let addresses: Vec<_> =
        frameworks.iter().flat_map(|_| [free_address(), free_address()]).collect();
    command.args(addresses.iter().map(|address| address.port().to_string()));
    command.env("SLIDEGATE_URL", format!("http://{}", site.decisions));
    command.env("SLIDEGATE_TOKEN", TOKEN);
    command.env("SLIDEGATE_TIMEOUT_MS", TIMEOUT.as_millis().to_string());
    command.stderr(File::create(&stderr).unwrap());
    let _application = Program::start(command, install, addresses[0]);
    for address in &addresses {
        wait_until("all ports", || TcpStream::connect(address).is_ok());
    }
    let logged = || fs::read_to_string(&stderr).unwrap();
    for (framework, open) in frameworks.iter().zip(addresses.iter().step_by(2)) {
        check_limits(*open, framework);
    }
    assert!(!logged().contains("gave no decision"), "{}", logged());

    site.stop_slidegate();
    check_failing(&addresses, Duration::ZERO);
    assert!(logged().contains("slidegate gave no decision"), "{}", logged());
    let silent = TcpListener::bind(site.decisions).unwrap();
    check_failing(&addresses, TIMEOUT);
    drop(silent);
    // One that answers, but not as Slidegate does.
    let other = Application::start_on(TcpListener::bind(site.decisions).unwrap());
    check_failing(&addresses, Duration::ZERO);
    assert!(other.seen().iter().all(|request| request == "POST /v1/decide"));
}

/// The plan has three units: one is spent, one refunded, two held of which one was not used, one spent.
fn check_limits(address: SocketAddr, user: &str) {
    let pass = |remaining: &str| {
        let passed = get(address, "/reports", user);
        assert_eq!(passed.status(), 200, "{user}");
        assert_eq!(header(&passed, "x-ratelimit-limit"), "3", "{user}");
        assert_eq!(header(&passed, "x-ratelimit-remaining"), remaining, "{user}");
        assert!(header(&passed, "ratelimit").starts_with("\"reports\";r="), "{user}");
        assert_eq!(passed.text().unwrap(), "hello", "{user}");
    };
    pass("2");
    let broken = get(address, "/broken", user);
    assert_eq!((broken.status().as_u16(), header(&broken, "x-ratelimit-remaining")), (500, "1"));
    let metered = get(address, "/metered", user);
    assert_eq!((metered.status().as_u16(), header(&metered, "x-ratelimit-remaining")), (200, "0"));
    assert_eq!(metered.text().unwrap(), "hello", "{user}");
    pass("0");
    let refused = get(address, "/reports", user);
    assert_eq!(refused.status(), 429, "{user}");
    let retry_after: u32 = header(&refused, "retry-after").parse().unwrap();
    assert!((1..=61).contains(&retry_after), "{user}: {retry_after}");
    assert_eq!(header(&refused, "content-type"), "application/problem+json", "{user}");
    let body = refused.text().unwrap();
    assert!(body.contains(r#""violated-policies":["reports"]"#), "{user}: {body}");
    assert_eq!(get(address, "/reports?x=%20y", user).status(), 429, "{user}");
    for spelling in ["/reports#x", "/reports#/../x", "/REPORTS", "/x%2f..%2freports", "//reports/"]
    {
        let response = send_raw(address, "GET", spelling, &format!("x-user: {user}\r\n"));
        assert!(!response.contains("hello"), "{user}, {spelling}: {response}");
    }
    assert_eq!(get(address, "/private", user).status(), 403, "{user}");

    // Slidegate does not take so many header lines; some servers do not either.
    let mut request = Client::new().get(format!("http://{address}/reports"));
    for line in 0..300 {
        request = request.header(format!("x-{line}"), "y");
    }
    let status = request.send().unwrap().status().as_u16();
    assert!([400, 431].contains(&status), "{user}: {status}");
}

/// Every other address fails open, the others fail closed, none before `at_least`.
fn check_failing(addresses: &[SocketAddr], at_least: Duration) {
    thread::scope(|scope| {
        for (address, status) in addresses.iter().zip([200, 503].into_iter().cycle()) {
            scope.spawn(move || {
                let began = Instant::now();
                assert_eq!(get(*address, "/reports", "anybody").status(), status, "{address}");
                let took = began.elapsed();
                assert!(took >= at_least && took < at_least + 2 * TIMEOUT, "{address}: {took:?}");
            });
        }
    });
}

#[test]
fn the_node_package_limits_express_fastify_and_hono() {
    let package = NodePackage::install();
    check(&["express", "fastify", "hono"], &mut package.application("app.mjs"), NODE);
}

#[test]
fn the_node_package_passes_its_tests() {
    succeed(&mut NodePackage::install().tests(), NODE);
}

#[test]
fn the_types_of_the_node_package_fit_the_frameworks() {
    succeed(&mut NodePackage::install().types("types.ts"), NODE);
}

#[test]
fn the_python_package_limits_fastapi_flask_and_django() {
    let package = PythonPackage::install();
    check(&["fastapi", "flask", "django"], &mut package.application("app.py"), PYTHON);
}

#[test]
fn the_python_package_passes_its_tests() {
    succeed(&mut PythonPackage::install().tests(), PYTHON);
}

#[test]
fn the_go_module_limits_net_http() {
    let (_directory, program) = build_go("app.go");
    check(&["net/http"], &mut Command::new(program), GO);
}

#[test]
fn the_go_module_passes_its_tests() {
    for arguments in [&["vet", "./..."], &["test", "./..."]] {
        succeed(&mut go(&client("go"), arguments), GO);
    }
}
