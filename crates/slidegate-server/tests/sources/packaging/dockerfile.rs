//! The image. No test builds it: that takes Docker, and a network.

use std::fs;
use std::process::Command;

use slidegate_testbed::{Directory, Upstream, tool};

use super::{check, path, read, run};
use crate::unlimited;

/// The instructions of the Dockerfile, each in one line.
fn instructions() -> Vec<(String, String)> {
    let text = read("Dockerfile");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let text = lines.map(|line| format!("{line}\n")).collect::<String>().replace("\\\n", " ");
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines
        .map(|line| {
            let (word, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            (word.to_owned(), rest.trim().to_owned())
        })
        .collect()
}

/// What the instructions of this name say, all of them.
fn said(name: &str) -> Vec<String> {
    let all = instructions().into_iter();
    all.filter(|(word, _)| word == name).map(|(_, rest)| rest).collect()
}

fn last(name: &str) -> String {
    said(name).pop().unwrap_or_else(|| panic!("no {name}"))
}

/// The files and folders that are copied from the project.
fn copied() -> Vec<String> {
    let copies = said("COPY").into_iter().filter(|copy| !copy.contains("--from="));
    copies
        .flat_map(|copy| {
            let mut words: Vec<String> = copy.split_whitespace().map(str::to_owned).collect();
            words.pop();
            words
        })
        .collect()
}

/// A list in JSON, as ENTRYPOINT and CMD have it.
fn words(name: &str) -> Vec<String> {
    serde_json::from_str(&last(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn all_that_is_copied_is_there_and_not_ignored() {
    let ignored = read(".dockerignore");
    assert!(ignored.lines().any(|line| line == "*"), "everything but what is named");
    let kept: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    for source in copied() {
        assert!(path(&source).exists(), "{source}");
        let top = source.split('/').next().unwrap();
        let is_kept = |kept: &&str| match kept.strip_suffix('*') {
            Some(start) => top.starts_with(start),
            None => top == *kept,
        };
        assert!(kept.iter().any(is_kept), "{source} is ignored");
    }
}

#[test]
fn what_is_copied_is_a_whole_workspace() {
    let directory = Directory::new();
    let context = directory.file("context");
    fs::create_dir(&context).unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-R").args(copied().iter().map(|source| path(source))).arg(&context);
    assert!(copy.status().unwrap().success());
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--locked", "--offline", "--no-deps", "--format-version", "1"]);
    let output = metadata.current_dir(&context).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap().iter();
    let mut server = packages.filter(|package| package["name"] == "slidegate-server");
    let targets = server.next().expect("the package that is built")["targets"].clone();
    let mut names = targets.as_array().unwrap().iter();
    assert!(names.any(|target| target["kind"][0] == "bin" && target["name"] == "slidegate"));
    let build = said("RUN").concat();
    assert!(build.contains("cargo build --profile dist --locked -p slidegate-server"), "{build}");
    assert!(build.contains("target/dist/slidegate "), "{build}");
}

#[test]
fn an_image_has_the_licences_of_all_crates_in_the_binary() {
    let build = said("RUN").concat();
    assert!(build.contains("scripts/licences >/THIRD-PARTY-LICENSES.txt"), "{build}");
    let place = "/usr/share/doc/slidegate/";
    let expected = format!("--from=build /THIRD-PARTY-LICENSES.txt {place}");
    assert!(said("COPY").contains(&expected));
    assert!(said("COPY").contains(&format!("LICENSE-APACHE LICENSE-MIT {place}")));
}

#[test]
fn hadolint_accepts_the_dockerfile() {
    run(Command::new(tool("bin/hadolint")).arg(path("Dockerfile")), "scripts/tools");
}

#[test]
fn an_image_runs_as_an_unprivileged_user() {
    let user = last("USER");
    let ids = user.split(':').map(|id| id.parse().unwrap_or_else(|_| panic!("{user}")));
    let ids: Vec<u32> = ids.collect();
    assert!(ids.len() == 2 && ids.iter().all(|id| *id > 0), "{user}");
    let state = format!("--chown={user} /state /var/lib/slidegate");
    assert!(said("COPY").iter().any(|copy| copy.contains(&state)), "it may write its snapshots");
}

#[test]
fn an_images_command_line_is_valid_and_its_file_is_good() {
    let entry = words("ENTRYPOINT");
    assert_eq!(entry, ["/usr/bin/slidegate"]);
    assert!(said("COPY").iter().any(|copy| copy.ends_with(&format!(" {}", entry[0]))));
    let command = words("CMD");
    let [serve, config, file] = &command[..] else { panic!("{command:?}") };
    let mut help = Command::new(env!("CARGO_BIN_EXE_slidegate"));
    let help = help.args([serve, "--help"]).output().unwrap();
    assert!(
        help.status.success() && String::from_utf8_lossy(&help.stdout).contains(config.as_str())
    );
    let copies = said("COPY");
    let copy = copies.iter().find(|copy| copy.ends_with(file)).expect("a file to go by");
    check(&path(copy.split(' ').next().unwrap()));
    let exposed = last("EXPOSE");
    let text = read("packaging/slidegate.toml");
    for port in ["8080", "9090"] {
        assert!(exposed.contains(port) && text.contains(&format!(":{port}\"")), "{exposed}");
    }
}

#[test]
fn an_images_health_check_asks_the_server_that_its_file_describes() {
    let check = last("HEALTHCHECK");
    let (options, command) = check.split_once(" CMD ").unwrap();
    // The command gives up by itself before it is killed.
    assert!(options.split(' ').any(|option| option == "--timeout=3s"), "{options}");
    let command: Vec<String> = serde_json::from_str(command).expect("there is no shell");
    let [program, arguments @ ..] = &command[..] else { panic!("{command:?}") };
    assert_eq!((program, arguments), (&words("ENTRYPOINT")[0], &["health".to_owned()][..]));
    let run = |arguments: &[String]| {
        let mut health = Command::new(env!("CARGO_BIN_EXE_slidegate"));
        health.args(arguments).env_remove("SLIDEGATE_ADMIN").output().unwrap()
    };
    let help = run(&[arguments, &["--help".to_owned()]].concat());
    let help = String::from_utf8(help.stdout).unwrap();
    let text = read("packaging/slidegate.toml");
    let (_, listen) = text.split_once("[admin]").unwrap();
    let (_, listen) = listen.split_once("\nlisten = \"").unwrap();
    let (listen, _) = listen.split_once('"').unwrap();
    assert!(help.contains(&format!("[default: http://{listen}]")), "{help}");

    let gateway = unlimited(&Upstream::simple());
    let admin = ["--admin".to_owned(), format!("http://{}", gateway.admin())];
    let output = run(&[arguments, &admin].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn an_image_is_built_with_a_compiler_that_is_new_enough() {
    let image = &said("FROM")[0];
    let (_, version) = image.split_once("rust:").unwrap();
    let minor = |version: &str| version.split(['.', '-']).nth(1).unwrap().parse::<u32>().unwrap();
    let manifest = read("Cargo.toml");
    let (_, needed) = manifest.split_once("rust-version = \"").unwrap();
    let (needed, _) = needed.split_once('"').unwrap();
    assert!(minor(version) >= minor(needed), "{version}, and {needed} is needed");
    // The binary is linked to the C library of the first image and runs with that of the second.
    let second = last("FROM");
    assert!(image.contains("bookworm") && second.contains("-debian12:"), "one Debian: {second}");
}
