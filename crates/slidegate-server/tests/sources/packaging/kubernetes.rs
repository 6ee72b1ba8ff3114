//! The Kustomize base: what kubectl makes of it, held against Kubernetes's schemas, and its
//! configuration with the real program, asked what the probes ask.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use slidegate_testbed::{
    Directory, Gateway, RedisServer, SlidegateOptions, Upstream, Wire, ledger_keys, tool,
    wait_until,
};

use super::{check, drain_s, items, path, read, run, text, yaml};
use crate::options;

const TOKEN_FILE: &str = "/etc/slidegate/secrets/admin-token";
const TOKEN: &str = "a token of the test";

/// The resources that `kubectl apply -k` sends for a directory of `packaging`.
fn rendered(directory: &str) -> Vec<Value> {
    let mut kubectl = Command::new("kubectl");
    let text = run(kubectl.args(["kustomize", directory]), "apt-get install kubernetes-client");
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The only resource of a kind in the base.
fn resource(kind: &str) -> Value {
    let mut found = rendered("kubernetes").into_iter().filter(|resource| resource["kind"] == kind);
    let resource = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "another {kind}");
    resource
}

/// The pod that the Deployment makes.
fn pod() -> Value {
    resource("Deployment")["spec"]["template"]["spec"].take()
}

fn container() -> Value {
    pod()["containers"][0].take()
}

/// The configuration of the ConfigMap, with a token in a file of the test.
fn configuration(directory: &Directory) -> String {
    let file = directory.file("admin-token");
    fs::write(&file, TOKEN).unwrap();
    let map = resource("ConfigMap");
    let configuration = text(&map["data"]["slidegate.toml"]);
    assert!(configuration.contains(TOKEN_FILE), "{configuration}");
    configuration.replace(TOKEN_FILE, file.to_str().unwrap())
}

fn start(directory: &Directory, upstream: &Upstream, redis: &RedisServer) -> Gateway {
    let url = upstream.url();
    let flags = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &url];
    let options = options().configuration(&configuration(directory));
    let options = flags.into_iter().fold(options, SlidegateOptions::argument);
    let variable = container()["env"][0]["name"].take();
    Gateway::from(options.variable(text(&variable), &redis.url()).start())
}

/// The files of a directory that are manifests.
fn manifests(directory: &Path) -> BTreeSet<String> {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.ends_with(".yaml") && name != "kustomization.yaml").collect()
}

#[test]
fn each_manifest_is_named_and_those_named_are_there() {
    for directory in ["packaging/kubernetes", "packaging/kubernetes/monitoring"] {
        let kustomization = yaml(&format!("{directory}/kustomization.yaml"));
        let named = items(&kustomization["resources"]).iter().map(|name| text(name).to_owned());
        assert_eq!(named.collect::<BTreeSet<_>>(), manifests(&path(directory)), "{directory}");
    }
}

/// `preStop.sleep` needs 1.30; the other is the newest that there are schemas of.
#[test]
fn schemas_of_old_and_new_kubernetes_allow_every_field() {
    let resources = rendered("kubernetes");
    assert_eq!(resources.len(), 4);
    for version in ["1.30.0", "1.37.0"] {
        let schemas = format!("kubernetes_validate/kubernetes-json-schema/v{version}-local-strict");
        let schemas = fs::read_to_string(tool(&format!("{schemas}/_definitions.json"))).unwrap();
        let mut root: Value = serde_json::from_str(&schemas).unwrap();
        for resource in &resources {
            let api = text(&resource["apiVersion"]);
            let (group, api) = api.split_once('/').unwrap_or(("", api));
            let kind = json!({"group": group, "version": api, "kind": resource["kind"]});
            let definitions = root["$defs"].as_object().unwrap().iter();
            let mut names = definitions.filter_map(|(name, schema)| {
                items(&schema["x-kubernetes-group-version-kind"]).contains(&kind).then_some(name)
            });
            let name = names.next().unwrap_or_else(|| panic!("{kind} is not in {version}"));
            root["$ref"] = json!(format!("#/$defs/{name}"));
            let validator = jsonschema::validator_for(&root).unwrap();
            let errors: Vec<String> = validator
                .iter_errors(resource)
                .map(|error| format!("{} at {}", error, error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{version}, {kind}: {errors:#?}");
        }
    }
}

#[test]
fn a_pods_configuration_is_good_and_fits_its_memory() {
    let directory = Directory::new();
    let file = directory.file("slidegate.toml");
    fs::write(&file, configuration(&directory)).unwrap();
    let said = check(&file);
    let (_, most) = said.split_once("and full: ").unwrap_or_else(|| panic!("{said}"));
    let most = most.split_once(" MB").unwrap().0;
    let memory = container()["resources"]["limits"]["memory"].take();
    let limit: u64 = text(&memory).strip_suffix("Mi").unwrap().parse().unwrap();
    assert!(limit > most.parse::<u64>().unwrap() + 50, "{limit} MiB for {most} MB of accounts");
}

#[test]
fn a_pods_probes_are_answered_and_its_variable_names_redis() {
    let (directory, upstream, redis) = (Directory::new(), Upstream::simple(), RedisServer::start());
    let gateway = start(&directory, &upstream, &redis);
    let container = container();
    for probe in ["livenessProbe", "readinessProbe"] {
        let get = &container[probe]["httpGet"];
        assert_eq!(gateway.admin_page(text(&get["path"])).status(), 200, "{probe}");
        assert_eq!(get["port"], "admin");
    }
    // The file names another Redis. On a busy machine this one may be late now and then.
    wait_until("this Redis to count", || {
        assert_eq!(gateway.status("/"), 200);
        !ledger_keys(&redis).is_empty()
    });

    assert_eq!(gateway.admin_page("/metrics").status(), 401);
    let bearer = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(Wire::connect(gateway.admin()).get("/metrics", &bearer).status(), 200);

    gateway.signal("TERM");
    assert_eq!(gateway.wait(), Some(0));
}

#[test]
fn a_pod_without_redis_still_gets_requests() {
    let (directory, upstream, redis) = (Directory::new(), Upstream::simple(), RedisServer::start());
    redis.kill();
    let gateway = start(&directory, &upstream, &redis);
    for _ in 0..10 {
        assert_eq!(gateway.status("/"), 200);
    }
    let ready = container()["readinessProbe"]["httpGet"]["path"].take();
    assert_eq!(gateway.admin_page(text(&ready)).status(), 200);
}

#[test]
fn ports_files_and_secrets_fit_together() {
    let (directory, pod, container) = (Directory::new(), pod(), container());
    let configuration = configuration(&directory);
    let ports = items(&container["ports"]);
    assert_eq!((&ports[0]["name"], &ports[1]["name"]), (&json!("http"), &json!("admin")));
    for port in ports {
        let listen = format!("listen = \"0.0.0.0:{}\"", port["containerPort"]);
        assert!(configuration.contains(&listen), "{listen}");
    }
    assert_eq!(resource("Service")["spec"]["ports"][0]["targetPort"], "http");
    let [config, secrets] = items(&container["volumeMounts"]) else { panic!("two mounts") };
    let file = format!("{}/slidegate.toml", text(&config["mountPath"]));
    assert_eq!(container["args"], json!(["serve", "--config", file]));
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(container["image"], format!("slidegate:{version}"));

    let [map, secret] = items(&pod["volumes"]) else { panic!("two volumes") };
    assert_eq!(map["configMap"]["name"], "slidegate");
    assert_eq!(secret["secret"]["secretName"], "slidegate");
    let token = &secret["secret"]["items"][0];
    let file = format!("{}/{}", text(&secrets["mountPath"]), text(&token["path"]));
    assert_eq!(file, TOKEN_FILE);
    let url = &container["env"][0]["valueFrom"]["secretKeyRef"];
    assert_eq!(url["name"], "slidegate");
    // The page says how to make the Secret; it is in no file.
    let page = read("docs/deployment.md");
    assert!(page.contains("kubectl create secret generic slidegate "));
    for key in [&token["key"], &url["key"]] {
        assert!(page.contains(&format!("--from-literal={}=", text(key))), "{key}");
    }
}

#[test]
fn selectors_and_references_find_resources_by_their_name() {
    for resource in [rendered("kubernetes"), rendered("kubernetes/monitoring")].concat() {
        assert_eq!(resource["metadata"]["name"], "slidegate", "{resource}");
        assert_eq!(resource["metadata"]["labels"]["app"], "slidegate", "{resource}");
    }
    for (kind, pointer) in [
        ("Deployment", "/spec/selector/matchLabels/app"),
        ("Deployment", "/spec/template/metadata/labels/app"),
        ("Service", "/spec/selector/app"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels/app"),
    ] {
        assert_eq!(resource(kind).pointer(pointer), Some(&json!("slidegate")), "{kind}");
    }
    let monitors = rendered("kubernetes/monitoring");
    let [monitor] = &monitors[..] else { panic!("one monitor") };
    assert_eq!(monitor["spec"]["selector"]["matchLabels"]["app"], "slidegate");
    let endpoint = &monitor["spec"]["podMetricsEndpoints"][0];
    assert_eq!(endpoint["port"], "admin");
    let credentials = &endpoint["authorization"]["credentials"];
    let secret = pod()["volumes"][1]["secret"].take();
    assert_eq!(credentials["name"], secret["secretName"]);
    assert_eq!(credentials["key"], secret["items"][0]["key"]);
}

/// The page makes the resource of the rules themselves, so that there is no copy.
#[test]
fn a_documented_command_makes_a_prometheus_rule_of_the_alerts() {
    let page = read("docs/deployment.md");
    let begin = page.find("{ printf 'apiVersion: monitoring").expect("the command");
    let (command, _) = page[begin..].split_once("| kubectl apply -f -").expect("its end");
    let mut shell = Command::new("sh");
    let made = run(shell.args(["-c", &format!("cd .. && {command}")]), "a POSIX shell");
    let made: Value = serde_saphyr::from_str(&made).unwrap();
    assert_eq!(made["kind"], "PrometheusRule");
    assert_eq!(made["metadata"]["name"], "slidegate");
    assert_eq!(made["spec"], yaml("packaging/alerts.yml"));
}

#[test]
fn a_pod_is_unprivileged_and_terminates_in_order() {
    let (pod, container) = (pod(), container());
    let own = &pod["securityContext"];
    let user = format!("\nUSER {}:{}\n", own["runAsUser"], own["runAsGroup"]);
    assert!(read("Dockerfile").contains(&user), "the image's own: {user}");
    assert_eq!(own["runAsNonRoot"], true);
    let own = &container["securityContext"];
    assert_eq!(own["readOnlyRootFilesystem"], true);
    assert_eq!(own["allowPrivilegeEscalation"], false);
    assert_eq!(own["capabilities"]["drop"], json!(["ALL"]));

    let config = read("packaging/kubernetes/slidegate.toml");
    assert!(config.contains("\ndrain_delay = \"5s\"\n"), "{config}");
    assert!(pod["terminationGracePeriodSeconds"].as_u64().unwrap() > 5 + drain_s());
    let replicas = resource("Deployment")["spec"]["replicas"].as_u64().unwrap();
    let kept = resource("PodDisruptionBudget")["spec"]["minAvailable"].as_u64().unwrap();
    assert!(replicas >= 2 && kept < replicas);
}
