//! Refusals: every reason, every shape, gRPC.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::support::{CLIENT, Down, Scripted, decide, field, gate, now, policies};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Response};
use serde_json::{Value, json};
use slidegate::policy::{Action, Override, Overrides, PoliciesBuilder};
use slidegate::{
    AccessList, Ban, Decision, Facts, Gate, ManualClock, OnStoreError, Plan, Policy, Quota, Scope,
    StoreError, Verdict,
};
use slidegate_tower::{Dialect, Headers, Reason, Refusal, Refused, Responder, Shape};
use tonic_types::StatusExt;

type Outcome = Result<Decision, StoreError>;

const UPGRADE: &str = "https://app.example.com/upgrade?from=\"free\"";
const TYPES: &str = "https://iana.org/assignments/http-problem-types#";

fn api() -> PoliciesBuilder {
    policies([Policy::new("api").quota(Quota::per_minute(1))])
}

fn by_plan() -> PoliciesBuilder {
    let free = Plan::new("free", [Quota::per_minute(1), Quota::per_day(1000)]);
    policies([Policy::new("api").plans("free")]).plan(free.upgrade_url(UPGRADE))
}

/// The gate's answer to the second request, 14.5 seconds after the first.
fn denied(policies: PoliciesBuilder) -> Outcome {
    let clock = ManualClock::default();
    let gate = gate(&clock, policies);
    assert!(decide(&gate).unwrap().is_allowed());
    clock.advance(Duration::from_millis(14_500));
    decide(&gate)
}

fn blocked() -> Outcome {
    let listed = api().blocked(AccessList::new().network("203.0.113.0/24".parse().unwrap()));
    decide(&gate(&ManualClock::default(), listed))
}

fn too_costly() -> Outcome {
    let facts = Facts::new(&Method::GET, "/").cost(NonZeroU32::new(2).unwrap());
    gate(&ManualClock::default(), api()).decide_now(&facts)
}

fn banned() -> Outcome {
    let ban = Ban::after(Quota::per_minute(2)).lasting(Duration::from_secs(600));
    let policy = Policy::new("api").quota(Quota::per_minute(1)).ban(ban);
    let gate = gate(&ManualClock::default(), policies([policy]));
    let last = (0..4).map(|_| decide(&gate)).last().unwrap();
    assert!(matches!(last.as_ref().unwrap().verdict(), Verdict::Block(_)), "{last:?}");
    last
}

fn suspended() -> Outcome {
    let gate = gate(&ManualClock::default(), api());
    let ban = Override {
        identity: "ip:203.0.113.7".parse().unwrap(),
        policy: Some("api".parse().unwrap()),
        action: Action::Ban,
        until: gate.now() + Duration::from_secs(600),
    };
    gate.admin().replace_overrides(Overrides::new([ban]).unwrap());
    decide(&gate)
}

fn down() -> Outcome {
    let policy = Policy::new("api").quota(Quota::per_minute(1)).on_store_error(OnStoreError::Deny);
    decide(&Gate::new(policies([policy]).build().unwrap(), Down))
}

fn refuse(responder: &Responder, outcome: &Outcome) -> Response<Bytes> {
    responder.refuse(outcome, &HeaderMap::new()).expect("a refusal")
}

fn body(response: &Response<Bytes>) -> Value {
    serde_json::from_slice(response.body()).unwrap()
}

fn shaped(shape: Shape, outcome: &Outcome) -> Response<Bytes> {
    refuse(&Responder::new().refusal(shape), outcome)
}

#[test]
fn each_reason_is_a_problem_document() {
    let cases: [(Outcome, u16, &str, Value); 6] = [
        (
            denied(api()),
            429,
            "46",
            json!({
                "type": format!("{TYPES}quota-exceeded"),
                "title": "Request cannot be satisfied as assigned quota has been exceeded",
                "status": 429,
                "detail": "Too many requests. Try again in 46 seconds.",
                "violated-policies": ["api"],
            }),
        ),
        (
            banned(),
            429,
            "600",
            json!({
                "type": format!("{TYPES}abnormal-usage-detected"),
                "title": "Request not satisifed due to detection of abnormal request pattern",
                "status": 429,
                "detail": "Too many requests were denied, so none is accepted for a while. \
                           Try again in 600 seconds.",
                "violated-policies": ["api"],
            }),
        ),
        (
            suspended(),
            403,
            "600",
            json!({
                "type": "about:blank",
                "title": "Forbidden",
                "status": 403,
                "detail": "Access was suspended by the operator. Try again in 600 seconds.",
            }),
        ),
        (
            down(),
            503,
            "1",
            json!({
                "type": format!("{TYPES}temporary-reduced-capacity"),
                "title": "Request cannot be satisfied due to temporary server capacity constraints",
                "status": 503,
                "detail": "The service cannot accept this request at the moment. \
                           Try again in 1 second.",
            }),
        ),
        (
            too_costly(),
            429,
            "",
            json!({
                "type": format!("{TYPES}quota-exceeded"),
                "title": "Request cannot be satisfied as assigned quota has been exceeded",
                "status": 429,
                "detail": "This request costs more than is allowed in a whole window. \
                           It cannot pass later either.",
            }),
        ),
        (
            blocked(),
            403,
            "",
            json!({
                "type": "about:blank",
                "title": "Forbidden",
                "status": 403,
                "detail": "Requests of this client are not accepted.",
            }),
        ),
    ];
    for (outcome, status, retry_after, problem) in cases {
        let response = refuse(&Responder::new(), &outcome);
        assert_eq!(response.status(), status);
        assert_eq!(field(response.headers(), "retry-after"), retry_after, "{problem}");
        assert_eq!(field(response.headers(), "content-type"), "application/problem+json");
        assert_eq!(field(response.headers(), "cache-control"), "no-store");
        assert_eq!(body(&response), problem);
    }
}

#[test]
fn a_denial_reports_where_the_client_stands() {
    let response = refuse(&Responder::new(), &denied(api()));
    assert_eq!(field(response.headers(), "ratelimit-policy"), r#""api";q=1;w=60"#);
    assert_eq!(field(response.headers(), "ratelimit"), r#""api";r=0;t=46"#);
    assert_eq!(field(response.headers(), "x-ratelimit-remaining"), "0");
    let response = refuse(&Responder::new(), &down());
    assert!(!response.headers().contains_key("ratelimit"), "nothing is known");
}

#[test]
fn violated_policies_are_called_as_in_the_headers() {
    let response = refuse(&Responder::new(), &denied(by_plan()));
    assert_eq!(body(&response)["violated-policies"], json!(["api/60s"]));
    let policy = field(response.headers(), "ratelimit-policy");
    assert!(policy.starts_with(r#""api/60s";q=1;"#), "{policy}");
}

#[test]
fn only_what_was_violated_and_enforced_is_named() {
    let outcome = denied(policies([
        Policy::new("wide").quota(Quota::per_minute(100)),
        Policy::new("watching").quota(Quota::per_minute(1)).shadow(),
        Policy::new("one").quota(Quota::per_minute(1)),
        Policy::new("two").quota(Quota::per_hour(1)),
    ]));
    let response = refuse(&Responder::new(), &outcome);
    assert_eq!(body(&response)["violated-policies"], json!(["one", "two"]));
    assert_eq!(field(response.headers(), "retry-after"), "3586", "the longest");
}

#[test]
fn a_denial_has_plan_and_upgrade_link_where_they_are_known() {
    let problem = body(&refuse(&Responder::new(), &denied(by_plan())));
    assert_eq!((&problem["plan"], &problem["upgrade_url"]), (&json!("free"), &json!(UPGRADE)));
    let problem = body(&refuse(&Responder::new(), &denied(api())));
    assert!(problem.get("plan").is_none() && problem.get("upgrade_url").is_none());
}

#[test]
fn each_shape_has_its_own_body_for_a_denial() {
    let outcome = denied(by_plan());
    let json_shapes = [
        (Shape::Error, json!({"error": "Too Many Requests"})),
        (
            Shape::Plan,
            json!({
                "error": "Rate limit exceeded", "limit": 1, "retryAfterMs": 45_500,
                "plan": "free", "upgradeUrl": UPGRADE,
            }),
        ),
        (
            Shape::Code,
            json!({"error": {
                "code": "RATE_LIMIT_EXCEEDED",
                "message": "Too many requests. Please retry after 46 seconds.",
                "retryAfter": 46,
            }}),
        ),
    ];
    for (shape, expected) in json_shapes {
        let response = shaped(shape, &outcome);
        assert_eq!(body(&response), expected, "{shape}");
        assert_eq!(field(response.headers(), "content-type"), "application/json");
    }
    for (shape, expected) in [
        (Shape::Text, "Too many requests. Try again in 46 seconds.\n"),
        (Shape::Bare, "Too Many Requests"),
    ] {
        let response = shaped(shape, &outcome);
        assert_eq!(response.body(), expected, "{shape}");
        assert_eq!(field(response.headers(), "content-type"), "text/plain; charset=utf-8");
    }
}

#[test]
fn every_shape_has_status_retry_after_and_no_store_for_every_reason() {
    let outcomes = [
        (denied(by_plan()), 429, "46"),
        (banned(), 429, "600"),
        (down(), 503, "1"),
        (too_costly(), 429, ""),
        (blocked(), 403, ""),
        (suspended(), 403, "600"),
    ];
    for shape in ["problem", "error", "plan", "code", "text", "bare"] {
        let parsed: Shape = shape.parse().unwrap();
        assert_eq!(parsed.to_string(), shape);
        for (outcome, status, retry_after) in &outcomes {
            let response = shaped(parsed, outcome);
            assert_eq!(response.status(), *status, "{shape}");
            assert_eq!(field(response.headers(), "retry-after"), *retry_after, "{shape}");
            assert_eq!(field(response.headers(), "cache-control"), "no-store", "{shape}");
            assert!(!response.body().is_empty());
            // Constant text is copied into bodies without escapes, so it must need none.
            if field(response.headers(), "content-type").contains("json") {
                let json: serde_json::Value = serde_json::from_slice(response.body()).unwrap();
                assert_eq!(json.to_string().len(), response.body().len(), "{json}");
            }
        }
    }
    let error = "html".parse::<Shape>().unwrap_err().to_string();
    assert!(error.contains("html") && error.contains("problem"), "{error}");
}

#[test]
fn retry_after_is_rounded_up_and_at_least_one() {
    let ms = Duration::from_millis;
    for (reset, retry, expected) in [
        (ms(1), ms(1), "1"),
        (ms(999), ms(999), "1"),
        (ms(1000), ms(1000), "1"),
        (ms(1000), Duration::from_nanos(1_000_000_001), "2"),
        (ms(10_000), ms(35_000), "35"),
        // A store that says otherwise is not believed to be earlier than the effective window.
        (ms(50_000), ms(1), "50"),
    ] {
        let scripted = Scripted { spent: false, standings: vec![(0, reset, retry)] };
        let gate = Gate::new(api().build().unwrap(), scripted);
        let response = refuse(&Responder::new(), &decide(&gate));
        assert_eq!(field(response.headers(), "retry-after"), expected, "{reset:?} {retry:?}");
    }
}

#[test]
fn a_template_is_filled_in() {
    let json_template = r#"{"message":"{message}","wait":{retry_after},"ms":{retry_after_ms},"of":{limit},"by":"{policy}","plan":"{plan}","more":"{upgrade_url}","nested":{"status":{status},"is":"{error}"},"empty":{}}"#;
    let refusal = Refusal::template("application/json; charset=utf-8", json_template).unwrap();
    let responder = Responder::new().refusal(refusal);
    assert_eq!(
        body(&refuse(&responder, &denied(by_plan()))),
        json!({
            "message": "Too many requests. Try again in 46 seconds.", "wait": 46, "ms": 45_500,
            "of": 1, "by": "api", "plan": "free", "more": UPGRADE,
            "nested": {"status": 429, "is": "Too Many Requests"}, "empty": {},
        })
    );
    let unknown = body(&refuse(&responder, &blocked()));
    assert_eq!(unknown["wait"], Value::Null, "still JSON where a number is not known");
    assert_eq!(unknown["nested"]["status"], 403);

    let refusal =
        Refusal::template("text/plain", "{{plan}} {policy}: wait {retry_after} s").unwrap();
    let response = refuse(&Responder::new().refusal(refusal), &denied(by_plan()));
    assert_eq!(response.body(), "{free} api: wait 46 s");
    assert_eq!(response.status(), 429);
    assert_eq!(field(response.headers(), "content-type"), "text/plain");
}

#[test]
fn a_template_with_an_unknown_placeholder_cannot_be_built() {
    for (text, word) in [("{retry}", "{retry}"), ("a {plan} {tier} b", "{tier}")] {
        let error = Refusal::template("text/plain", text).unwrap_err().to_string();
        assert!(error.contains(word) && error.contains("{retry_after}"), "{error}");
    }
    assert!(Refusal::template("text/plain\n", "").is_err());
    for text in ["", "{", "}", "{}", "{ plan }", "{Plan}", "{plan", "{\"plan\":1}", "ä{é}"] {
        assert!(Refusal::template("text/plain", text).is_ok(), "{text:?} has no placeholder");
    }
}

#[test]
fn a_function_makes_the_response() {
    let refusal = Refusal::with(|refused| {
        assert_eq!(refused.reason(), Reason::QuotaExceeded);
        let plan = refused.plan().unwrap();
        let body = format!("{} {:?} {:?}", plan.name, refused.limit(), refused.retry_after_s());
        Response::builder().status(420).header("x-mood", "calm").body(body).unwrap()
    });
    let response = refuse(&Responder::new().refusal(refusal), &denied(by_plan()));
    assert_eq!(response.status(), 420);
    assert_eq!(response.body(), "free Some(1) Some(46)");
    assert_eq!(field(response.headers(), "x-mood"), "calm");
    assert_eq!(field(response.headers(), "retry-after"), "46", "added where it is missing");
    assert_eq!(field(response.headers(), "cache-control"), "no-store");
    assert!(response.headers().contains_key("ratelimit"));

    let own = Refusal::with(|_| {
        Response::builder().header("retry-after", "99").body(Bytes::new()).unwrap()
    });
    let response = refuse(&Responder::new().refusal(own), &denied(api()));
    assert_eq!(field(response.headers(), "retry-after"), "99");
}

#[test]
fn a_policy_can_have_its_own_refusal() {
    let flood = || Policy::new("flood").quota(Quota::per_second(1)).scope(Scope::Local);
    let api = || Policy::new("api").quota(Quota::per_minute(1));
    let responder = Responder::new().refusal_for("flood", Refusal::bare());
    let clock = ManualClock::default();
    let gate = gate(&clock, policies([flood(), api()]));
    assert!(responder.refuse(&decide(&gate), &HeaderMap::new()).is_none());
    let response = refuse(&responder, &decide(&gate));
    assert_eq!(response.body(), "Too Many Requests", "the flood guard is bare");
    assert_eq!(field(response.headers(), "retry-after"), "1");
    clock.advance(Duration::from_secs(1));
    let response = refuse(&responder, &decide(&gate));
    assert_eq!(body(&response)["violated-policies"], json!(["api"]), "the others explain");
}

#[test]
fn a_refusal_by_a_policy_that_is_kept_out_of_the_headers_has_retry_after_and_no_quota() {
    let clock = ManualClock::default();
    let flood = || Policy::new("flood").quota(Quota::per_second(1));
    let free = Plan::new("free", [Quota::per_minute(60)]).upgrade_url("https://app.example.com");
    let with = |flood: Policy| {
        gate(&clock, policies([flood, Policy::new("api").plans("free")]).plan(free.clone()))
    };
    // A local one denies before the plan's account is asked, a shared one together with it.
    for (gate, plan_is_known) in
        [(with(flood().scope(Scope::Local)), false), (with(flood().not_in_headers()), true)]
    {
        for shape in [Shape::Problem, Shape::Plan] {
            let responder = Responder::new().refusal(shape);
            let _ = decide(&gate);
            // Twice, because the second may be the first told again.
            for _ in 0..2 {
                let response = refuse(&responder, &decide(&gate));
                let headers = response.headers();
                assert_eq!(field(headers, "retry-after"), "1");
                for name in ["ratelimit", "ratelimit-policy"] {
                    assert!(!field(headers, name).contains("flood"), "{headers:?}");
                    assert_eq!(headers.contains_key(name), plan_is_known, "{name}");
                }
                let limit = if plan_is_known { "60" } else { "" };
                assert_eq!(field(headers, "x-ratelimit-limit"), limit);
                let body = body(&response);
                for key in ["limit", "plan", "upgrade_url", "upgradeUrl"] {
                    assert!(body.get(key).is_none(), "{key} in {body}");
                }
                if shape == Shape::Problem {
                    assert_eq!(body["violated-policies"], json!(["flood"]));
                }
            }
            clock.advance(Duration::from_secs(60));
        }
    }
}

#[test]
fn an_operators_ban_claims_in_no_shape_that_there_were_too_many_requests() {
    let outcome = suspended();
    for shape in [Shape::Problem, Shape::Error, Shape::Plan, Shape::Code, Shape::Text, Shape::Bare]
    {
        let response = shaped(shape, &outcome);
        assert_eq!(response.status(), 403, "{shape}");
        assert_eq!(field(response.headers(), "retry-after"), "600", "{shape}");
        let text = String::from_utf8(response.body().to_vec()).unwrap().to_lowercase();
        for claim in ["too many", "denied", "exceeded", "abnormal", "violated"] {
            assert!(!text.contains(claim), "{shape}: {text}");
        }
    }
    let text = shaped(Shape::Text, &outcome);
    assert_eq!(text.body(), "Access was suspended by the operator. Try again in 600 seconds.\n");
    assert_eq!(body(&shaped(Shape::Code, &outcome))["error"]["code"], "ACCESS_SUSPENDED");
    let responder = Responder::new().refusal_for("api", Refusal::bare());
    assert_eq!(
        refuse(&responder, &outcome).body(),
        "Forbidden",
        "the policy that the override names"
    );
}

#[test]
fn a_policys_own_refusal_is_for_its_bans_too() {
    let outcome = banned();
    let responder = Responder::new().refusal_for("other", Shape::Text);
    assert_eq!(body(&refuse(&responder, &outcome))["status"], 429, "no other policy's");
    let response = refuse(&responder.refusal_for("api", Refusal::bare()), &outcome);
    assert_eq!(response.body(), "Too Many Requests");
    assert_eq!(field(response.headers(), "retry-after"), "600");
    let template = Refusal::template("text/plain", "{policy}: {retry_after}").unwrap();
    assert_eq!(refuse(&Responder::new().refusal(template), &outcome).body(), "api: 600");
    assert_eq!(Refused::of(&outcome).unwrap().violated_policies(), ["api"]);
}

#[test]
fn during_a_ban_retry_after_is_not_before_the_quotas_have_room() {
    let clock = ManualClock::default();
    let ban = Ban::after(Quota::per_minute(2)).lasting(Duration::from_secs(600));
    let gate = gate(&clock, policies([Policy::new("api").quota(Quota::per_day(1)).ban(ban)]));
    let _ = decide(&gate);
    for (wait_s, expected) in [(0, "86400"), (1, "86399"), (1, "86398"), (500, "85898")] {
        clock.advance(Duration::from_secs(wait_s));
        let response = refuse(&Responder::new(), &decide(&gate));
        assert_eq!(field(response.headers(), "retry-after"), expected);
    }
}

#[test]
fn what_is_prepared_equals_what_is_written_anew() {
    let free = |url: &str| Plan::new("free", [Quota::per_minute(2)]).upgrade_url(url);
    let of_plan = |url| policies([Policy::new("api").plans("free")]).plan(free(url));
    let named = |name| Policy::new(name).quota(Quota::per_minute(2));
    let all = [
        policies([named("api")]),
        policies([named("other")]),
        policies([named("api").quota(Quota::per_day(5))]),
        policies([Policy::new("api").quota(Quota::per_minute(3))]),
        policies([named("api"), named("other").scope(Scope::Local)]),
        policies([named("api"), named("other").scope(Scope::Local).in_headers()]),
        policies([named("api").not_in_headers(), Policy::new("own").quota(Quota::per_minute(4))]),
        policies([named("api"), Policy::new("other").quota(Quota::per_hour(2))]),
        policies([named("api").shadow(), named("own")]),
        policies([Policy::new("own").quota(Quota::per_minute(2)).count_denied()]),
        of_plan("https://one.example"),
        of_plan("https://two.example"),
    ];
    let clock = ManualClock::default();
    let gates = all.map(|policies| gate(&clock, policies));
    let kinds = {
        let headers = Headers::new([Dialect::Draft11, Dialect::XRateLimit]).clock(clock.clone());
        let responder = Responder::new().headers(headers).refusal_for("own", Shape::Text);
        let template = Refusal::template("text/plain", "{policy} {limit} {retry_after} {plan}");
        let in_ms = Refusal::template("text/plain", "{retry_after_ms}");
        [
            responder.clone(),
            responder.clone().headers(Headers::new([Dialect::Draft06])),
            responder.clone().refusal(Shape::Plan),
            responder.clone().refusal(template.unwrap()),
            responder.clone().refusal(in_ms.unwrap()),
            responder.clone().headers(Headers::none()).refusal(Shape::Code),
            responder.refusal(Refusal::with(|refused| Response::new(refused.message()))),
        ]
    };
    // Also for the policies of another gate, as they are while a reload replaces them.
    let prepared: Vec<Vec<Responder>> = gates
        .iter()
        .map(|gate| kinds.iter().map(|kind| kind.clone().prepared_for(&gate.policies())).collect())
        .collect();
    let grant = Override {
        identity: "ip:203.0.113.7".parse().unwrap(),
        policy: Some("own".parse().unwrap()),
        action: Action::Grant { units: NonZeroU32::MIN, window: None },
        until: gates[0].now() + Duration::from_secs(60),
    };
    for gate in &gates {
        gate.admin().replace_overrides(Overrides::new([grant.clone()]).unwrap());
    }
    let (mut refusals, mut allowed) = (0, 0);
    for _ in 0..200 {
        clock.advance(Duration::from_millis(730));
        for outcome in gates.iter().map(decide) {
            for ready in prepared.iter().flat_map(|ready| ready.iter().zip(&kinds)) {
                let both = [ready.0, ready.1];
                let [one, two] = both.map(|kind| kind.refuse(&outcome, &HeaderMap::new()));
                let Some((one, two)) = one.zip(two) else {
                    let decision = outcome.as_ref().unwrap();
                    let [one, two] = both.map(|kind| {
                        let mut response = Response::new(());
                        kind.annotate(decision, &mut response);
                        response
                    });
                    assert_eq!(one.headers(), two.headers());
                    allowed += 1;
                    continue;
                };
                assert_eq!((one.status(), one.headers()), (two.status(), two.headers()));
                assert_eq!(one.body(), two.body());
                let order = |response: &Response<Bytes>| -> Vec<HeaderName> {
                    response.headers().keys().cloned().collect()
                };
                assert_eq!(order(&one), order(&two), "also the order on the wire");
                let [(one, fields), (two, same)] =
                    both.map(|kind| kind.refuse_apart(&outcome, &HeaderMap::new()).unwrap());
                assert_eq!((one.headers(), one.body()), (two.headers(), two.body()));
                assert!(fields.iter().eq(same.iter()));
                refusals += 1;
            }
        }
    }
    assert!(refusals > 100_000 && allowed > 5000, "{refusals} {allowed}");
}

#[test]
fn what_may_pass_is_not_refused() {
    let allowed = decide(&gate(&ManualClock::default(), api()));
    assert!(Refused::of(&allowed).is_none());
    assert!(Responder::new().refuse(&allowed, &HeaderMap::new()).is_none());
}

#[test]
fn grpc_callers_are_refused_the_grpc_way() {
    for (outcome, code, retry_after_s) in [
        (denied(api()), tonic::Code::ResourceExhausted, Some(46)),
        (banned(), tonic::Code::ResourceExhausted, Some(600)),
        (suspended(), tonic::Code::PermissionDenied, Some(600)),
        (down(), tonic::Code::Unavailable, Some(1)),
        (too_costly(), tonic::Code::ResourceExhausted, None),
        (blocked(), tonic::Code::PermissionDenied, None),
    ] {
        for content_type in ["application/grpc", "application/grpc+proto", "application/grpc;x=y"] {
            let mut request = HeaderMap::new();
            request.insert("content-type", content_type.parse().unwrap());
            // The shape is for HTTP callers.
            let responder = Responder::new().refusal(Shape::Code);
            let response = responder.refuse(&outcome, &request).unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(field(response.headers(), "content-type"), "application/grpc");
            assert!(response.body().is_empty());
            let status = tonic::Status::from_header_map(response.headers()).unwrap();
            assert_eq!(status.code(), code);
            assert_eq!(status.message(), Refused::of(&outcome).unwrap().message());
            let delay = status.get_details_retry_info().and_then(|info| info.retry_delay);
            assert_eq!(delay, retry_after_s.map(Duration::from_secs));
        }
    }
}

#[test]
fn other_content_types_are_not_grpc() {
    let outcome = denied(api());
    for content_type in ["application/grpcx", "application/grpc-web", "application/json", ""] {
        let mut request = HeaderMap::new();
        request.insert("content-type", content_type.parse().unwrap());
        let response = Responder::new().refuse(&outcome, &request).unwrap();
        assert_eq!(response.status(), 429, "{content_type}");
    }
}

#[test]
fn a_long_wait_survives_the_grpc_encoding() {
    let year = Duration::from_secs(366 * 86_400);
    let scripted = Scripted { spent: false, standings: vec![(0, year, year)] };
    let gate = Gate::new(api().build().unwrap(), scripted);
    let facts = Facts::new(&Method::GET, "/").client(CLIENT.parse().unwrap());
    let mut request = HeaderMap::new();
    request.insert("content-type", "application/grpc".parse().unwrap());
    let response = Responder::new().refuse(&now(gate.decide(&facts)), &request).unwrap();
    let status = tonic::Status::from_header_map(response.headers()).unwrap();
    assert_eq!(status.get_details_retry_info().unwrap().retry_delay, Some(year));
}
