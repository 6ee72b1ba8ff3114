//! API keys that have names: operators read and write these, not digests.

use slidegate_testbed::Upstream;

use crate::configure;
use crate::terminal::Operator;

const DIGEST: &str = "a2e3ac06bb3a3d74863f2e5db2e3fcbe";

#[test]
fn a_key_that_has_a_name_is_shown_and_asked_for_by_it() {
    let upstream = Upstream::simple();
    let gateway = configure(&upstream)
        .tables("[plans.pro]\nquotas = [\"4/h\"]")
        .tables(&format!("[[api_key]]\nname = \"acme\"\ndigest = {DIGEST:?}\nplan = \"pro\""))
        .policy("api", "", "identity = [\"api-key\", \"ip\"]\nplan = \"pro\"")
        .start();
    let get = || gateway.get("/", "X-API-Key: k-123\r\n").status();
    assert_eq!([(); 5].map(|()| get()), [200, 200, 200, 200, 429]);
    let operator = Operator::of(&gateway);
    for arguments in [&["accounts"][..], &["accounts", "--sort", "denied"]] {
        let table = operator.run(arguments);
        assert!(table.contains("api-key:acme  api") && !table.contains(DIGEST), "{table}");
    }
    let by_name = operator.run(&["inspect", "api-key:acme"]);
    assert!(by_name.contains("api-key:acme") && by_name.contains("4/h"), "{by_name}");
    assert_eq!(operator.run(&["inspect", &format!("api-key:{DIGEST}")]), by_name);
    assert_eq!(operator.run_with("k-123", &["inspect", "api-key:-"]), by_name);
    let grant = ["grant", "api-key:acme", "1", "--for", "1h", "--reason", "a test"];
    assert!(operator.run(&grant).starts_with("api-key:acme "), "{}", operator.run(&grant));
    assert_eq!([get(), get()], [200, 429]);
    assert!(operator.run(&["overrides"]).contains("api-key:acme"));
    let said = operator.fail(&["inspect", "api-key:initech"]);
    assert!(
        said.contains("expected the name of an API key") && !said.contains("initech"),
        "{said}"
    );
}

#[test]
fn an_admin_endpoint_can_be_given_as_its_listen_address() {
    let gateway = configure(&Upstream::simple()).start();
    let operator = Operator::of(&gateway);
    let (address, port) = (gateway.admin().to_string(), gateway.admin().port());
    let localhost = format!("localhost:{port}");
    for admin in [address, localhost, format!("0.0.0.0:{port}")] {
        let output =
            operator.command(&["overrides"]).env("SLIDEGATE_ADMIN", &admin).output().unwrap();
        assert!(output.status.success(), "{admin}: {}", crate::terminal::errors(&output));
    }
}
