//! Real frameworks behind the gateway: however a path is spelled, the handler of a limited one runs
//! no more often than its quota says.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

use slidegate_testbed::program::{free_address, run, send_raw};
use slidegate_testbed::{Directory, Program};

use crate::packages::{GO, NODE, PYTHON, installed};

const LOGIN: &str = "/api/v1/auth/login";

const SPELLINGS: [&str; 48] = [
    "/api/v1/auth/login/",
    "//api/v1/auth/login",
    "/api//v1/auth//login",
    "/./api/v1/auth/login",
    "/api/v1/./auth/login/.",
    "/../api/v1/auth/login",
    "/x/../api/v1/auth/login",
    "/api/v1/x//../../auth/login",
    "/api/v1/auth/login/x/..",
    "/%61pi/v1/auth/login",
    "/api/v1/auth/%6Cogin",
    "/%61%70%69/%76%31/%61%75%74%68/%6c%6f%67%69%6e",
    "/x/%2e%2e/api/v1/auth/login",
    "/%2e/api/v1/auth/login",
    "/api/%2e%2e/../api/v1/auth/login",
    "/api%2fv1%2fauth%2flogin",
    "/api/v1/auth%2Flogin",
    "/%2fapi/v1/auth/login",
    "/api/v1/auth/login%2f",
    "/x%2f..%2fapi/v1/auth/login",
    "/x/..%2fapi%2Fv1/auth/login",
    "/API/v1/auth/login",
    "/api/v1/auth/LOGIN",
    "/Api/V1/Auth/Login/",
    "/api/v1/auth/%4cOGIN",
    "/API%2fv1%2fAuth/login",
    "/api/v1/auth/login;x=1",
    "/api/v1/auth/login;",
    "/api;a=b/v1/auth/login",
    "/;x/api/v1/auth/login",
    "/x/..;/api/v1/auth/login",
    "/api/v1/auth/login%3bx=1",
    "/x/..%3b/api/v1/auth/login",
    "/api/v1/auth/login%20",
    "/api/v1/auth/login%20/",
    "/api\\v1\\auth\\login",
    "/api/v1/auth%5clogin",
    "/x\\..\\api/v1/auth/login",
    "/x/..%5capi/v1/auth/login",
    "/api/v1/auth/login#x",
    "/api/v1/auth/login/#/../x",
    "/api/v1/auth/login%23x",
    "/api/v1/auth/login?x=1",
    "/api/v1/auth/login?x#y",
    "/api/v1/auth/login%3Fx",
    "/API%2fv1//auth/./LOGIN;x=1/#y",
    "http://a/api/v1/auth/login",
    "http://a//API/v1/auth/login/",
];

/// Whether the handler ran.
fn runs(address: SocketAddr, path: &str) -> bool {
    send_raw(address, "POST", path, "").contains("logged-in")
}

/// Asks the application in every spelling, of which it understands some, and then the gateway before
/// it, which lets one request pass.
#[track_caller]
fn check(command: &mut Command, install: &str, application: SocketAddr, directory: &Directory) {
    let _application = Program::start(command.stderr(Stdio::null()), install, application);
    assert!(runs(application, LOGIN));
    let others = SPELLINGS.iter().filter(|path| runs(application, path)).count();
    assert!(others >= 3, "the application understands {others} spellings only");

    let gateway = free_address();
    let config = format!(
        "[gateway]\nlisten = \"{gateway}\"\nupstream = \"http://{application}\"\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\
         [[policy]]\nname = \"login\"\nquotas = \"1/h\"\n\
         match = {{ method = \"POST\", path = \"{LOGIN}\" }}\n"
    );
    let config = directory.write("gateway.toml", &config);
    let mut slidegate = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    slidegate.args(["serve", "--config"]).arg(config).stderr(Stdio::null());
    let _slidegate = Program::start(&mut slidegate, "cargo build", gateway);
    assert!(runs(gateway, LOGIN), "the quota is one");
    for path in [LOGIN].iter().chain(&SPELLINGS) {
        assert!(!runs(gateway, path), "{path}");
    }
}

fn node(program: &str) {
    let (directory, address) = (Directory::new(), free_address());
    let packages = directory.path().join("node_modules");
    std::os::unix::fs::symlink(installed("node/node_modules"), packages).unwrap();
    let file = directory.write("app.mjs", program);
    let mut command = Command::new("node");
    command.arg(file).arg(address.port().to_string());
    check(&mut command, NODE, address, &directory);
}

#[test]
fn express_runs_a_handler_as_often_as_its_quota_says() {
    node(
        r#"import express from "express";
        const app = express();
        app.post("/api/v1/auth/login", (req, res) => res.send("logged-in"));
        app.listen(Number(process.argv[2]), "127.0.0.1");"#,
    );
}

#[test]
fn fastify_runs_a_handler_as_often_as_its_quota_says() {
    node(
        r#"import fastify from "fastify";
        const app = fastify();
        app.post("/api/v1/auth/login", async () => "logged-in");
        app.listen({ port: Number(process.argv[2]), host: "127.0.0.1" });"#,
    );
}

#[test]
fn flask_on_gunicorn_runs_a_handler_as_often_as_its_quota_says() {
    let (directory, address) = (Directory::new(), free_address());
    directory.write(
        "login_app.py",
        "from flask import Flask\n\
         app = Flask(__name__)\n\
         @app.post(\"/api/v1/auth/login\")\n\
         def login():\n    return \"logged-in\"\n",
    );
    let tools = installed("tools/gunicorn");
    let mut command = Command::new("python3");
    command.args(["-B", "-m", "gunicorn", "--bind", &address.to_string(), "login_app:app"]);
    command.env("PYTHONPATH", tools.parent().unwrap()).current_dir(directory.path());
    check(&mut command, PYTHON, address, &directory);
}

#[test]
fn go_runs_a_handler_as_often_as_its_quota_says() {
    let (directory, address) = (Directory::new(), free_address());
    directory.write("go.mod", "module login\n");
    directory.write(
        "main.go",
        r#"package main

import ("fmt"; "net/http"; "os")

func main() {
    http.HandleFunc("/api/v1/auth/login", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "logged-in") })
    http.ListenAndServe(os.Args[1], nil)
}
"#,
    );
    let program = directory.path().join("app");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program).arg(".").current_dir(directory.path());
    let built = run(build.env("GOFLAGS", "-mod=mod").env("GOTOOLCHAIN", "local"), GO);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut command = Command::new(&program);
    check(command.arg(address.to_string()), GO, address, &directory);
}
