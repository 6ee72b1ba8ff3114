//! The Debian package and the tarball, made of the program under test by the script that makes those of a
//! release. The package is installed with dpkg into a root of its own, which has a shell and no systemd.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use slidegate_testbed::{Directory, Gateway, Slidegate, Upstream, wait_until};

use super::{path, run};
use crate::PROGRAM;

const VERSION: &str = env!("CARGO_PKG_VERSION");
const FILE: &str = "/etc/slidegate/slidegate.toml";
const BUSYBOX: &str = "/bin/busybox";
/// Where debhelper installs units: that of Debian 12, and newer ones.
const UNITS: [&str; 2] =
    ["/lib/systemd/system/slidegate.service", "/usr/lib/systemd/system/slidegate.service"];

/// The packages of the program under test.
struct Packages {
    directory: Directory,
}

impl Packages {
    fn build() -> Self {
        let directory = Directory::new();
        run(Command::new(path("scripts/package")).arg(PROGRAM).arg(directory.path()), "bash");
        Self { directory }
    }

    /// The only file with this ending.
    fn file(&self, ending: &str) -> PathBuf {
        let files = fs::read_dir(self.directory.path()).unwrap();
        let mut found = files.map(|entry| entry.unwrap().path());
        found
            .find(|path| path.to_str().unwrap().ends_with(ending))
            .unwrap_or_else(|| panic!("no {ending}"))
    }
}

/// A root with a shell, the libraries of the program and an empty database of dpkg.
struct Root {
    directory: Directory,
}

impl Root {
    fn new() -> Self {
        let root = Self { directory: Directory::new() };
        for folder in ["bin", "dev", "usr/bin", "tmp", "var/lib/dpkg/info", "var/lib/dpkg/updates"]
        {
            fs::create_dir_all(root.path(folder)).unwrap();
        }
        fs::write(root.path("dev/null"), "").unwrap();
        // The maintainer scripts find a POSIX shell and what it runs, and nothing of systemd.
        fs::copy(BUSYBOX, root.path("bin/busybox")).expect("apt-get install busybox");
        for program in ["sh", "rm", "rmdir"] {
            symlink("busybox", root.path("bin").join(program)).unwrap();
        }
        for program in [PROGRAM, BUSYBOX] {
            root.add_libraries(program);
        }
        // The packages that the libraries are from. That to be installed can depend on no others.
        let mut query = Command::new("dpkg-query");
        query.args(["--status", "libc6", "libgcc-s1"]);
        fs::write(root.path("var/lib/dpkg/status"), run(&mut query, "a Debian system")).unwrap();
        root
    }

    /// The libraries that a program is linked to; none if it is static.
    fn add_libraries(&self, program: &str) {
        let list = Command::new("ldd").arg(program).output().expect("apt-get install libc-bin");
        let list = String::from_utf8(list.stdout).unwrap();
        for library in list.split_whitespace().filter(|word| word.starts_with('/')) {
            let place = self.path(library);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::copy(library, place).unwrap();
        }
    }

    /// Installs programs like those of systemd and Debian that note how they are called. They answer as for a
    /// package that has never been installed before.
    fn add_systemd(&self) {
        // The purge has removed directories that were empty.
        for folder in ["run/systemd/system", "usr/bin"] {
            fs::create_dir_all(self.path(folder)).unwrap();
        }
        for program in ["deb-systemd-helper", "deb-systemd-invoke", "systemctl"] {
            let script =
                format!("#!/bin/sh\necho {program} $* >>/calls\n[ $1 != debian-installed ]\n");
            let place = self.path("usr/bin").join(program);
            fs::write(&place, script).unwrap();
            fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// What the maintainer scripts have called since the last look.
    fn calls(&self) -> String {
        let calls = fs::read_to_string(self.path("calls")).unwrap_or_default();
        fs::write(self.path("calls"), "").unwrap();
        calls
    }

    fn path(&self, inside: &str) -> PathBuf {
        self.directory.file(inside.trim_start_matches('/'))
    }

    /// A program that may do in the root what only root may.
    fn command(&self, program: &str) -> Command {
        let user = run(Command::new("id").arg("--user"), "apt-get install coreutils");
        let mut words = match user.trim() {
            "0" => vec![],
            _ => vec!["unshare", "--map-root-user"],
        };
        words.push(program);
        let mut command = Command::new(words.remove(0));
        command.args(words);
        command
    }

    fn dpkg(&self, arguments: &[&str]) {
        let root = format!("--root={}", self.directory.path().display());
        let mut dpkg = self.command("dpkg");
        let output = dpkg.args(["--log=/dev/null", &root]).args(arguments).output().unwrap();
        assert!(output.status.success(), "dpkg {arguments:?}:\n{}", said(&output));
    }

    /// All files that are no directories.
    fn files(&self) -> Vec<String> {
        let mut find = Command::new("find");
        find.arg(self.directory.path()).args(["!", "-type", "d", "-printf", "/%P\n"]);
        let mut files: Vec<String> =
            run(&mut find, "apt-get install findutils").lines().map(str::to_owned).collect();
        files.sort();
        files
    }

    /// Serves with the installed program, on free ports.
    fn serve(&self, arguments: &[&str]) -> Gateway {
        let chroot = self.command("chroot");
        let words = [chroot.get_program()].into_iter().chain(chroot.get_args());
        let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
        let inside =
            format!("exec {} {} \"$0\" \"$@\"", words.join(" "), self.directory.path().display());
        let ports = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
        let program = Slidegate::options("/usr/bin/slidegate");
        let arguments = ports.iter().chain(arguments);
        let program = arguments.fold(program, |program, word| program.argument(word));
        Gateway::from(program.after(&inside).start())
    }

    /// Runs a line of a shell, and returns what it has written.
    fn shell(&self, line: &str, admin: &str) -> String {
        let inside = format!("PATH=/usr/bin:/bin; {line}");
        let mut command = self.command("chroot");
        command.arg(self.directory.path()).args(["/bin/sh", "-c", &inside]);
        let output = command.env("SLIDEGATE_ADMIN", admin).output().unwrap();
        assert!(output.status.success(), "{line}:\n{}", said(&output));
        said(&output)
    }

    /// Runs the installed program to its end.
    fn slidegate(&self, arguments: &[&str]) -> Output {
        let mut command = self.command("chroot");
        command.arg(self.directory.path()).arg("/usr/bin/slidegate").args(arguments);
        command.output().unwrap()
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// The pages that the program itself writes.
fn pages() -> Vec<String> {
    let directory = Directory::new();
    run(Command::new(PROGRAM).arg("man").arg(directory.path()), "cargo build");
    let entries = fs::read_dir(directory.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn packages_of_this_program_are_good() {
    let packages = Packages::build();
    let mut sums = Command::new("sh");
    sums.args(["-c", "cd \"$0\" && sha256sum --check --strict SHA256SUMS"]);
    let checked = run(sums.arg(packages.directory.path()), "apt-get install coreutils");
    assert_eq!(checked.lines().count(), 2, "{checked}");
    the_tarball_has_everything(&packages.file("-linux.tar.gz"));
    let deb = packages.file(".deb");
    lintian_has_no_complaint(&deb);
    let root = Root::new();
    let before = root.files();
    the_package_installs_without_systemd(&root, &deb);
    the_installed_program_does_what_the_guide_says(&root);
    the_installed_program_serves_the_installed_configuration(&root);
    a_new_version_leaves_a_changed_configuration_alone(&root, &deb);
    a_purge_leaves_nothing(&root, &before);
    with_systemd_a_server_is_not_enabled_but_restarted_and_stopped(&root, &deb);
}

fn the_tarball_has_everything(tarball: &Path) {
    let directory = Directory::new();
    let mut tar = Command::new("tar");
    tar.arg("--extract").arg("--file").arg(tarball).arg("--directory").arg(directory.path());
    run(&mut tar, "apt-get install tar");
    let folder = tarball.file_name().unwrap().to_str().unwrap().strip_suffix(".tar.gz").unwrap();
    assert!(folder.starts_with(&format!("slidegate-{VERSION}-")), "{folder}");
    let file = |name: &str| directory.file(folder).join(name);
    let version = run(Command::new(file("slidegate")).arg("--version"), "it is in the tarball");
    assert_eq!(version, format!("slidegate {VERSION}\n"));
    let pages = pages().into_iter().map(|page| format!("man/{page}"));
    let others = [
        "CHANGELOG.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "THIRD-PARTY-LICENSES.txt",
        "completions/bash/slidegate",
        "completions/fish/slidegate.fish",
        "completions/zsh/_slidegate",
        "slidegate",
        "slidegate.service",
        "slidegate.toml",
    ];
    let mut expected: Vec<String> = pages.chain(others.map(str::to_owned)).collect();
    expected.sort();
    let mut find = Command::new("find");
    find.arg(directory.file(folder)).args(["-type", "f", "-printf", "%P\n"]);
    let found = run(&mut find, "apt-get install findutils");
    let mut found: Vec<&str> = found.lines().collect();
    found.sort_unstable();
    assert_eq!(found, expected);

    let licences = fs::read_to_string(file("THIRD-PARTY-LICENSES.txt")).unwrap();
    for linked in ["\n  tokio 1.", "\n  ring 0.", "\n  libmimalloc-sys 0.", "Apache License", "ISC"]
    {
        assert!(licences.contains(linked), "{linked:?}");
    }
    for not_linked in [" proptest ", " fantoccini ", " prost-build ", " serde_derive "] {
        assert!(!licences.contains(not_linked), "{not_linked:?}");
    }
}

fn lintian_has_no_complaint(deb: &Path) {
    let mut lintian = Command::new("lintian");
    // The package is not meant for Debian's archive, where a first upload closes a bug.
    lintian.args(["--suppress-tags", "initial-upload-closes-no-bugs"]);
    // The test may run as root, which lintian advises against.
    lintian.args(["--fail-on", "error,warning", "--allow-root"]);
    run(lintian.arg(deb), "apt-get install lintian");
}

fn the_package_installs_without_systemd(root: &Root, deb: &Path) {
    root.dpkg(&["--install", deb.to_str().unwrap()]);
    let installed = root.files();
    let pages = pages().into_iter().map(|page| format!("/usr/share/man/man1/{page}.gz"));
    let others = [
        FILE,
        "/usr/bin/slidegate",
        "/usr/share/bash-completion/completions/slidegate",
        "/usr/share/doc/slidegate/THIRD-PARTY-LICENSES.txt.gz",
        "/usr/share/doc/slidegate/copyright",
        "/usr/share/fish/vendor_completions.d/slidegate.fish",
        "/usr/share/zsh/vendor-completions/_slidegate",
    ];
    for file in pages.chain(others.map(str::to_owned)) {
        assert!(installed.contains(&file), "{file} is not in {installed:#?}");
    }
    let unit = UNITS.into_iter().find(|unit| installed.contains(&(*unit).to_owned()));
    let unit = unit.unwrap_or_else(|| panic!("no unit is in {installed:#?}"));
    assert_eq!(
        fs::read(root.path(unit)).unwrap(),
        fs::read(path("packaging/slidegate.service")).unwrap()
    );
    let mode = |file: &str| fs::metadata(root.path(file)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(FILE), mode("usr/bin/slidegate")), (0o644, 0o755));
}

/// The commands of a section that end by themselves.
fn commands<'g>(guide: &'g str, heading: &str) -> Vec<&'g str> {
    let (_, section) = guide.split_once(heading).unwrap_or_else(|| panic!("no {heading}"));
    let section = section.split("\n## ").next().unwrap_or_default();
    let commands = section.lines().filter(|line| line.starts_with("slidegate "));
    commands.filter(|line| !line.starts_with("slidegate serve")).collect()
}

/// Sections 2 to 4 of the guide for a new user, after the package was installed.
fn the_installed_program_does_what_the_guide_says(root: &Root) {
    let guide = fs::read_to_string(path("docs/getting-started.md")).unwrap();
    let (upstream, example) = (Upstream::simple(), "http://127.0.0.1:3000");
    assert!(guide.contains(&format!("slidegate serve --upstream {example} --quota 5/min\n")));
    let gateway = root.serve(&["--upstream", &upstream.url(), "--quota", "5/min"]);
    let statuses = [(); 6].map(|()| gateway.status("/"));
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let wait = gateway.get("/", "").value("retry-after").expect("a refusal says when to retry");
    assert!((1..=60).contains(&wait.parse().unwrap()), "{wait}");
    drop(gateway);

    let (_, rest) = guide.split_once("Save this as `slidegate.toml`:\n\n```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    fs::write(root.path("slidegate.toml"), text.replace(example, &upstream.url())).unwrap();
    let commands_before = commands(&guide, "\n## 3.");
    assert_eq!(commands_before.len(), 2, "{commands_before:?}");
    for line in commands_before {
        root.shell(line, "");
    }
    let gateway = root.serve(&["slidegate.toml"]);
    for (header, units) in [("X-API-Key: k-123\r\n", "q=100;w=60"), ("", "q=10;w=60")] {
        let policy = gateway.get("/", header).value("ratelimit-policy").unwrap();
        assert!(policy.contains(units), "{header:?}: {policy}");
    }
    let statuses = [(); 11].map(|()| gateway.status("/"));
    assert_eq!((statuses[8], statuses[9]), (200, 429));
    let admin = format!("http://{}", gateway.admin());
    let commands_after = commands(&guide, "\n## 4.");
    assert_eq!(commands_after.len(), 4, "{commands_after:?}");
    for line in commands_after {
        let written = root.shell(line, &admin);
        assert!(written.contains("127.0.0.1"), "{line}: {written}");
    }
    assert_eq!(gateway.status("/"), 200, "the account was reset");
    assert!(gateway.metrics().contains("slidegate_policy_decisions"));
    fs::remove_file(root.path("slidegate.toml")).unwrap();
}

fn the_installed_program_serves_the_installed_configuration(root: &Root) {
    // As StateDirectory of the unit does. Without it, `check` says what is missing.
    let output = root.slidegate(&["check", FILE]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("/var/lib/slidegate"), "{}", said(&output));
    fs::create_dir_all(root.path("var/lib/private/slidegate")).unwrap();
    symlink("private/slidegate", root.path("var/lib/slidegate")).unwrap();
    let output = root.slidegate(&["check", FILE]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));

    let upstream = Upstream::simple();
    let gateway = root.serve(&["--config", FILE, "--upstream", &upstream.url()]);
    for left in ["99", "98"] {
        let response = gateway.get("/", "");
        assert_eq!(response.status(), 200);
        assert_eq!(response.value("x-ratelimit-remaining").as_deref(), Some(left));
    }
    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
    let accounts = root.path("var/lib/private/slidegate/accounts");
    wait_until("the snapshot", || accounts.exists());
}

fn a_new_version_leaves_a_changed_configuration_alone(root: &Root, deb: &Path) {
    let text = fs::read_to_string(root.path(FILE)).unwrap().replace("100/min", "50/min");
    fs::write(root.path(FILE), &text).unwrap();
    root.dpkg(&["--install", deb.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(root.path(FILE)).unwrap(), text);
    root.dpkg(&["--remove", "slidegate"]);
    assert_eq!(fs::read_to_string(root.path(FILE)).unwrap(), text, "it is a conffile");
}

fn a_purge_leaves_nothing(root: &Root, before: &[String]) {
    fs::create_dir_all(root.path("var/log/private/slidegate")).unwrap();
    symlink("private/slidegate", root.path("var/log/slidegate")).unwrap();
    fs::write(root.path("var/log/private/slidegate/audit"), "{}\n").unwrap();
    fs::write(root.path("etc/slidegate/environment"), "REDIS_URL=redis://127.0.0.1\n").unwrap();
    root.dpkg(&["--purge", "slidegate"]);
    // dpkg keeps its own database, and copies of it.
    let of_dpkg = |file: &&String| file.starts_with("/var/lib/dpkg/");
    let after: Vec<String> = root.files();
    let remains: Vec<&String> =
        after.iter().filter(|file| !of_dpkg(file) && !before.contains(file)).collect();
    assert!(remains.is_empty(), "{remains:?}");
    for folder in ["etc/slidegate", "var/lib/private/slidegate", "var/log/private/slidegate"] {
        assert!(!root.path(folder).exists(), "{folder}");
    }
}

fn with_systemd_a_server_is_not_enabled_but_restarted_and_stopped(root: &Root, deb: &Path) {
    root.add_systemd();
    let install = ["--install", deb.to_str().unwrap()];
    root.dpkg(&install);
    let calls = root.calls();
    assert!(calls.contains("systemctl --system daemon-reload\n"), "{calls}");
    // deb-systemd-invoke starts no unit that is disabled.
    assert!(!calls.contains("helper enable"), "the upstream is not configured yet: {calls}");
    root.dpkg(&install);
    let calls = root.calls();
    assert!(calls.contains("deb-systemd-invoke restart slidegate.service\n"), "{calls}");
    root.dpkg(&["--purge", "slidegate"]);
    let calls = root.calls();
    assert!(calls.contains("deb-systemd-invoke stop slidegate.service\n"), "{calls}");
}
