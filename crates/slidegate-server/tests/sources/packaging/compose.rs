//! The compose file: what it mounts, publishes and waits for. No test starts it: that takes Docker.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use slidegate_testbed::Directory;

use super::{check_with, drain_s, items, path, promtool, read, text, yaml};

const TOKEN: &str = "SLIDEGATE_ADMIN_TOKEN";

fn services() -> Vec<(String, Value)> {
    let mut compose = yaml("packaging/compose.yaml");
    let Value::Object(services) = compose["services"].take() else { panic!("no services") };
    services.into_iter().collect()
}

fn service(name: &str) -> Value {
    yaml("packaging/compose.yaml")["services"][name].take()
}

/// What a service mounts from the project, and where.
fn mounts(service: &Value) -> Vec<(String, String)> {
    let all = items(&service["volumes"]).iter().map(text);
    let files = all.filter_map(|volume| volume.strip_prefix("./"));
    files
        .map(|mount| {
            let read_only = mount.strip_suffix(":ro").unwrap_or_else(|| panic!("{mount}"));
            let (from, to) = read_only.split_once(':').unwrap();
            (format!("packaging/{from}"), to.to_owned())
        })
        .collect()
}

/// The file of the project that a service sees at this path.
fn mounted(name: &str, at: &str) -> String {
    let found = mounts(&service(name))
        .into_iter()
        .find_map(|(from, to)| at.strip_prefix(&to).map(|rest| format!("{from}{rest}")));
    found.unwrap_or_else(|| panic!("{name} has nothing at {at}"))
}

#[test]
fn compose_has_four_pinned_services_that_start_in_order() {
    let services = services();
    let names: BTreeSet<&str> = services.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, BTreeSet::from(["gateway", "grafana", "prometheus", "redis"]));
    for (name, service) in &services {
        let (_, version) = text(&service["image"]).split_once(':').expect("a version");
        let numbers = version.trim_start_matches('v').split('-').next().unwrap().split('.');
        let numbers: Vec<u32> = numbers.map(|number| number.parse().expect(version)).collect();
        assert_eq!(numbers.len(), 3, "{name}: {version}");
        let health = items(&service["healthcheck"]["test"]);
        assert!(health.len() > 1 && health[0] == "CMD", "{name}: {health:?}");
        let waits = service["depends_on"].as_object().into_iter().flatten();
        for (other, how) in waits {
            assert!(names.contains(other.as_str()), "{name} waits for {other}");
            assert_eq!(how["condition"], "service_healthy", "{name} waits for {other}");
        }
        assert!(name == "redis" || service["depends_on"].is_object(), "{name}");
    }
}

#[test]
fn all_that_is_mounted_is_there_and_all_ports_are_on_loopback() {
    for (name, service) in services() {
        for (file, _) in mounts(&service) {
            assert!(path(&file).exists(), "{name}: {file}");
        }
        for port in items(&service["ports"]) {
            assert!(text(port).starts_with("127.0.0.1:"), "{name}: {port}");
        }
    }
    assert!(service("redis").get("ports").is_none(), "it has no password");
}

#[test]
fn compose_takes_the_token_from_the_caller_and_gives_it_to_prometheus_too() {
    let token = service("gateway")["environment"][TOKEN].take();
    assert!(text(&token).starts_with(&format!("${{{TOKEN}:?")), "{token}");
    let compose = yaml("packaging/compose.yaml");
    assert_eq!(compose["secrets"]["admin-token"]["environment"], TOKEN);
    assert_eq!(compose["services"]["prometheus"]["secrets"][0], "admin-token");
    let scrape = yaml(&mounted("prometheus", "/etc/prometheus/prometheus.yml"));
    let credentials = &scrape["scrape_configs"][0]["authorization"]["credentials_file"];
    assert_eq!(credentials, "/run/secrets/admin-token");
}

#[test]
fn compose_runs_the_image_with_a_good_configuration() {
    let gateway = service("gateway");
    assert!(path("packaging").join(text(&gateway["build"])).join("Dockerfile").exists());
    assert_eq!(gateway["image"], concat!("slidegate:", env!("CARGO_PKG_VERSION")));
    let entry = format!("ENTRYPOINT [{:?}]", text(&gateway["healthcheck"]["test"][1]));
    let image = read("Dockerfile");
    assert!(image.contains(&entry), "{entry}");
    let words: Vec<&str> = items(&gateway["healthcheck"]["test"])[1..].iter().map(text).collect();
    assert!(image.contains(&format!("CMD {words:?}")), "the image asks the same: {words:?}");
    let (_, command) = image.split_once("\nCMD [").unwrap();
    let file = command.split('"').find(|word| word.ends_with(".toml")).unwrap();
    let file = mounted("gateway", file);
    check_with(&path(&file), &[(TOKEN, "a token of the caller")]);
    let configuration = read(&file);
    assert!(configuration.contains("\nurl = \"redis://redis:6379\"\n"));
    for port in items(&gateway["ports"]) {
        let (_, inside) = text(port).rsplit_once(':').unwrap();
        assert!(configuration.contains(&format!("\nlisten = \"0.0.0.0:{inside}\"\n")), "{port}");
    }
    let grace = text(&gateway["stop_grace_period"]).strip_suffix('s').unwrap();
    assert!(grace.parse::<u64>().unwrap() > drain_s());
}

#[test]
fn prometheus_scrapes_the_gateway_by_the_alerts() {
    let file = mounted("prometheus", "/etc/prometheus/prometheus.yml");
    let rules = mounted("prometheus", "/etc/prometheus/alerts.yml");
    assert_eq!(rules, "packaging/alerts.yml");
    let directory = Directory::new();
    let (copy, token) = (directory.file("prometheus.yml"), directory.file("token"));
    fs::write(&token, "a token").unwrap();
    let configuration = read(&file)
        .replace("/run/secrets/admin-token", token.to_str().unwrap())
        .replace("/etc/prometheus/alerts.yml", path(&rules).to_str().unwrap());
    fs::write(&copy, configuration).unwrap();
    promtool(&["check", "config", copy.to_str().unwrap()]);
    let scrape = &yaml(&file)["scrape_configs"][0];
    assert_eq!(scrape["job_name"], "slidegate");
    assert_eq!(scrape["static_configs"][0]["targets"][0], "gateway:9090");
}

#[test]
fn grafana_is_provisioned_with_prometheus_and_the_dashboard() {
    let provisioning =
        |file: &str| yaml(&mounted("grafana", &format!("/etc/grafana/provisioning/{file}")));
    let source = &provisioning("datasources/prometheus.yml")["datasources"][0];
    assert_eq!(
        (&source["type"], &source["url"]),
        (&"prometheus".into(), &"http://prometheus:9090".into())
    );
    let scrape = yaml("packaging/compose/prometheus.yml");
    assert_eq!(source["jsonData"]["timeInterval"], scrape["global"]["scrape_interval"]);
    let provider = &provisioning("dashboards/slidegate.yml")["providers"][0];
    let folder = text(&provider["options"]["path"]);
    assert_eq!(mounted("grafana", &format!("{folder}/slidegate.json")), "packaging/grafana.json");
    let home =
        service("grafana")["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"].take();
    assert_eq!(home, format!("{folder}/slidegate.json"));
}
