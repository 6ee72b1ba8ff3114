//! The packages of the clients, built as for their registries and installed from the built files.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use slidegate_testbed::Directory;
use slidegate_testbed::program::run;

pub(crate) const NODE: &str = "as root: apt-get install --yes --no-install-recommends nodejs";
pub(crate) const PYTHON: &str = "as root: apt-get install --yes --no-install-recommends python3";
pub(crate) const GO: &str = "as root: apt-get install --yes --no-install-recommends golang-go";
const NPM: &str = "as root: apt-get install --yes --no-install-recommends npm";

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `scripts/tools` has put into the target directory, which this test is somewhere below.
pub(crate) fn installed(path: &str) -> PathBuf {
    let test = env::current_exe().unwrap();
    let found = test.ancestors().map(|above| above.join(path)).find(|file| file.exists());
    found.unwrap_or_else(|| panic!("{path} is missing; install it: scripts/tools"))
}

/// A file or directory of a client.
pub(crate) fn client(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../clients").join(path)
}

/// A program that uses a client.
fn application(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/forward_auth/clients").join(file)
}

/// Runs a program that has to succeed.
pub(crate) fn succeed(command: &mut Command, install: &str) {
    let output = run(command, install);
    let [stdout, stderr] =
        [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
}

/// The examples in a client's README.
pub(crate) fn examples(readme: &str, language: &str) -> Vec<String> {
    let text = fs::read_to_string(client(readme)).unwrap();
    let opening = format!("```{language}\n");
    let blocks = text.split(&opening).skip(1);
    blocks.map(|block| block.split_once("```").unwrap().0.to_owned()).collect()
}

/// The package for npm, installed in the directory `app` below the frameworks' packages.
pub(crate) struct NodePackage(Directory);

impl NodePackage {
    pub(crate) fn install() -> Self {
        let directory = Directory::new();
        let frameworks = directory.file("node_modules");
        std::os::unix::fs::symlink(installed("node/node_modules"), frameworks).unwrap();
        fs::create_dir(directory.file("app")).unwrap();
        directory.write("app/package.json", r#"{"private": true, "type": "module"}"#);
        let npm = || {
            let mut npm = Command::new("npm");
            // An empty cache: the package needs no other one.
            npm.env("npm_config_cache", directory.file("cache"));
            npm.args(["--offline", "--ignore-scripts", "--no-audit", "--no-fund"]);
            npm.args(["--no-update-notifier", "--loglevel", "error"]);
            npm
        };
        let mut pack = npm();
        pack.arg("pack").arg("--pack-destination").arg(directory.path());
        succeed(pack.current_dir(client("node")), NPM);
        let mut install = npm();
        install.arg("install").arg(directory.file(&format!("slidegate-{VERSION}.tgz")));
        succeed(install.current_dir(directory.file("app")), NPM);
        Self(directory)
    }

    /// Node, to run one of the applications.
    pub(crate) fn application(&self, file: &str) -> Command {
        let copy = self.copy(&application(file));
        let mut node = Command::new("node");
        node.arg(copy);
        node
    }

    /// Node, to run the package's tests.
    pub(crate) fn tests(&self) -> Command {
        let copy = self.copy(&client("node/test/client.test.js"));
        let mut node = Command::new("node");
        node.arg("--test").arg(copy);
        node
    }

    /// The compiler of TypeScript, for all examples and for one of the applications.
    pub(crate) fn types(&self, file: &str) -> Command {
        self.copy(&application(file));
        let mut tsc = Command::new("node");
        tsc.current_dir(self.0.file("app")).arg("../node_modules/typescript/bin/tsc");
        tsc.args(["--noEmit", "--strict", "--exactOptionalPropertyTypes", "--module", "nodenext"]);
        tsc.args(["--target", "es2022", "--types", "node", file]);
        for (number, example) in examples("node/README.md", "ts").iter().enumerate() {
            let name = format!("example{number}.ts");
            self.0.write(&format!("app/{name}"), example);
            tsc.arg(name);
        }
        tsc
    }

    /// Copies a file to where it finds the package.
    fn copy(&self, file: &Path) -> PathBuf {
        let name = file.file_name().unwrap().to_str().unwrap();
        self.0.write(&format!("app/{name}"), &fs::read_to_string(file).unwrap())
    }
}

/// The package for PyPI, installed from the wheel that is built from the source distribution.
pub(crate) struct PythonPackage(Directory);

impl PythonPackage {
    pub(crate) fn install() -> Self {
        let package = Self(Directory::new());
        let [built, site] = ["built", "site"].map(|name| package.0.file(name));
        let mut build = package.python();
        build.args(["-m", "build", "--no-isolation", "--outdir"]).arg(&built).arg(client("python"));
        succeed(&mut build, PYTHON);
        assert!(built.join(format!("slidegate-{VERSION}.tar.gz")).exists());
        let mut install = package.python();
        install.args(["-m", "pip", "install", "--no-index", "--no-deps", "--no-compile"]);
        install
            .args(["--disable-pip-version-check", "--root-user-action", "ignore"])
            .arg("--target");
        install.arg(site).arg(built.join(format!("slidegate-{VERSION}-py3-none-any.whl")));
        succeed(&mut install, PYTHON);
        package
    }

    /// Python, to run one of the applications.
    pub(crate) fn application(&self, file: &str) -> Command {
        let mut python = self.python();
        python.arg(application(file));
        python
    }

    /// Python, to run the package's tests.
    pub(crate) fn tests(&self) -> Command {
        let mut python = self.python();
        python.args(["-m", "unittest", "discover"]).arg(client("python/tests"));
        python
    }

    /// Python with the package, the frameworks and the tools.
    fn python(&self) -> Command {
        let tools = installed("tools/fastapi");
        let paths = env::join_paths([&*self.0.file("site"), tools.parent().unwrap()]).unwrap();
        let mut python = Command::new("python3");
        python.arg("-B").env("PYTHONPATH", paths);
        // Where no package is found by the name of a file beside it.
        python.current_dir(self.0.path());
        python
    }
}

/// Go without a network, in a directory.
pub(crate) fn go(directory: &Path, arguments: &[&str]) -> Command {
    let mut go = Command::new("go");
    go.args(arguments).current_dir(directory);
    go.env("GOFLAGS", "-mod=mod").env("GOPROXY", "off").env("GOTOOLCHAIN", "local");
    go
}

/// Builds an application, and the example, as modules that require the Go client.
pub(crate) fn build_go(file: &str) -> (Directory, PathBuf) {
    let directory = Directory::new();
    let module = "github.com/slidegate/slidegate/clients/go";
    let replaced = fs::canonicalize(client("go")).unwrap();
    let replaced = replaced.display();
    let requires = format!("require {module} v{VERSION}\nreplace {module} => {replaced}\n");
    directory.write("go.mod", &format!("module application\ngo 1.19\n{requires}"));
    let examples = examples("go/README.md", "go");
    let sources = [("application", fs::read_to_string(application(file)).unwrap())];
    for (name, source) in sources.into_iter().chain([("example", examples.concat())]) {
        fs::create_dir(directory.file(name)).unwrap();
        directory.write(&format!("{name}/main.go"), &source);
    }
    fs::create_dir(directory.file("programs")).unwrap();
    succeed(&mut go(directory.path(), &["build", "-o", "programs/", "./..."]), GO);
    let program = directory.file("programs/application");
    (directory, program)
}
