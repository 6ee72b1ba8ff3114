//! The manifest: its configuration with the real program, asked what the probes ask.

use std::fs;

use slidegate_testbed::{RedisServer, SlidegateOptions};

use super::manifest::Document;
use super::{check, drain_s, read};
use crate::support::{Front, Place, Upstream, Wire, options, wait_until};

const TOKEN_FILE: &str = "/etc/slidegate/secrets/admin-token";
const CONTAINER: &str = "spec.template.spec.containers";

fn documents() -> Vec<Document> {
    Document::all(&read("packaging/kubernetes.yaml"))
}

/// The only document of a kind.
fn document(kind: &str) -> Document {
    let mut found = documents().into_iter().filter(|document| document.value("kind") == kind);
    let document = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "another {kind}");
    document
}

/// The values under a path in the container of the deployment.
fn container(path: &str) -> Vec<String> {
    let deployment = document("Deployment");
    let values = deployment.values(&format!("{CONTAINER}.{path}"));
    values.into_iter().map(str::to_owned).collect()
}

/// The configuration of the ConfigMap, with the Secret's token in a file of the test.
fn configuration(place: &Place) -> String {
    let file = place.path("admin-token");
    fs::write(&file, document("Secret").value("stringData.admin-token")).unwrap();
    let map = document("ConfigMap");
    let text = map.value("data.slidegate.toml");
    assert!(text.contains(TOKEN_FILE), "{text}");
    text.replace(TOKEN_FILE, file.to_str().unwrap())
}

fn start(place: &Place, upstream: &Upstream, redis: &RedisServer) -> Front {
    let url = upstream.url();
    let flags = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &url];
    let options = options().configuration(&configuration(place));
    let options = flags.into_iter().fold(options, SlidegateOptions::argument);
    Front::of(options.variable(&container("env.name").concat(), &redis.url()).start())
}

#[test]
fn its_configuration_is_good() {
    let place = Place::new();
    let file = place.path("slidegate.toml");
    fs::write(&file, configuration(&place)).unwrap();
    check(&file);
}

#[test]
fn its_probes_are_answered_and_its_variable_says_where_redis_is() {
    let (place, upstream, redis) = (Place::new(), Upstream::simple(), RedisServer::start());
    let front = start(&place, &upstream, &redis);
    for probe in ["livenessProbe", "readinessProbe"] {
        let path = container(&format!("{probe}.httpGet.path")).concat();
        assert_eq!(front.admin_page(&path).status(), 200, "{probe}");
        assert_eq!(container(&format!("{probe}.httpGet.port")), ["admin"]);
    }
    // The file names another Redis. On a busy machine this one may be late now and then.
    wait_until("this Redis to count", || {
        assert_eq!(front.status("/"), 200);
        redis.command(&["DBSIZE"]).integer() > 0
    });

    assert_eq!(front.admin_page("/metrics").status(), 401);
    let token = document("Secret").value("stringData.admin-token").to_owned();
    let bearer = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(Wire::connect(front.admin()).get("/metrics", &bearer).status(), 200);

    front.signal("TERM");
    assert_eq!(front.wait(), Some(0));
}

#[test]
fn without_redis_it_still_gets_requests() {
    let (place, upstream, redis) = (Place::new(), Upstream::simple(), RedisServer::start());
    redis.kill();
    let front = start(&place, &upstream, &redis);
    for _ in 0..10 {
        assert_eq!(front.status("/"), 200);
    }
    let ready = container("readinessProbe.httpGet.path").concat();
    assert_eq!(front.admin_page(&ready).status(), 200);
}

#[test]
fn ports_files_and_secrets_fit_together() {
    let place = Place::new();
    let text = configuration(&place);
    let (names, ports) = (container("ports.name"), container("ports.containerPort"));
    assert_eq!(names, ["http", "admin"]);
    for port in &ports {
        assert!(text.contains(&format!("listen = \"0.0.0.0:{port}\"")), "{port}");
    }
    let service = document("Service");
    assert!(names.contains(&service.value("spec.ports.targetPort").to_owned()));
    let [config, secrets] = &container("volumeMounts.mountPath")[..] else { panic!("two mounts") };
    assert_eq!(container("args"), ["serve", "--config", &format!("{config}/slidegate.toml")]);
    let item =
        document("Deployment").value("spec.template.spec.volumes.secret.items.path").to_owned();
    assert_eq!(format!("{secrets}/{item}"), TOKEN_FILE);
    let secret = document("Secret");
    let key = container("env.valueFrom.secretKeyRef.key").concat();
    assert!(secret.value(&format!("stringData.{key}")).starts_with("redis://"));
    // All of one name, so that they find each other.
    for document in documents() {
        assert_eq!(document.value("metadata.name"), "slidegate");
        assert_eq!(document.value("metadata.labels.app"), "slidegate");
    }
    for (kind, path) in [
        ("Deployment", "spec.selector.matchLabels.app"),
        ("Deployment", "spec.template.metadata.labels.app"),
        ("Service", "spec.selector.app"),
        ("PodDisruptionBudget", "spec.selector.matchLabels.app"),
    ] {
        assert_eq!(document(kind).value(path), "slidegate", "{kind}");
    }
}

#[test]
fn a_pod_is_nobody_in_particular_and_goes_in_order() {
    let deployment = document("Deployment");
    let pod = |path: &str| format!("spec.template.spec.{path}");
    let (user, group) = ("securityContext.runAsUser", "securityContext.runAsGroup");
    let ids = [user, group].map(|path| deployment.number(&pod(path)).to_string()).join(":");
    assert!(read("Dockerfile").contains(&format!("\nUSER {ids}\n")), "the image's own: {ids}");
    assert_eq!(deployment.value(&pod("securityContext.runAsNonRoot")), "true");
    assert_eq!(container("securityContext.readOnlyRootFilesystem"), ["true"]);
    assert_eq!(container("securityContext.allowPrivilegeEscalation"), ["false"]);
    assert_eq!(container("securityContext.capabilities.drop"), ["ALL"]);

    let pause: u64 = container("lifecycle.preStop.sleep.seconds").concat().parse().unwrap();
    assert!(deployment.number(&pod("terminationGracePeriodSeconds")) > pause + drain_s());
    let replicas = deployment.number("spec.replicas");
    assert!(
        replicas >= 2 && document("PodDisruptionBudget").number("spec.minAvailable") < replicas
    );
}
