//! The page of `--html`, in a real browser.

use serde_json::Value;
use slidegate_testbed::{Browser, ColorScheme};

use super::{Files, combined, log_at};

const CONFIG: &str = r#"
[[policy]]
name = "api"
identity = ["user", "ip"]
quotas = ["3/min", "100/h"]

[[policy]]
name = "login"
match = { method = "POST", path = "/login" }
quotas = ["2/min"]
"#;

const ARGUMENTS: [&str; 7] = [
    "--html",
    "report.html",
    "--sweep",
    "api=1/min..8/min",
    "--against",
    "current.toml",
    "access.log",
];

/// A log with markup wherever a client can write.
fn files() -> Files {
    let files = Files::with_config(CONFIG);
    files.write("current.toml", "[[policy]]\nname = \"old\"\nquotas = [\"1000/min\"]\n");
    let mut log = String::new();
    for client in 1..60 {
        let seconds: Vec<u32> = (0..client / 4).map(|n| n * 7).collect();
        log += &log_at(&format!("203.0.113.{client}"), &seconds);
    }
    for second in 0..4 {
        log += &combined("198.51.100.1", second, "POST /login HTTP/1.1");
        log += &combined("198.51.100.1", second, "POST /login HTTP/1.1");
        let script = "<script>alert(1)</script>";
        log += &format!(
            "198.51.100.2 - {script} [10/Oct/2026:13:00:0{second} +0000] \"GET /{script}?a=\\\"><svg HTTP/1.1\" \
             200 1 \"{script}\" \"{script}\"\n"
        );
    }
    log += "\"><script>alert(1)</script>\n";
    files.write("access.log", log);
    files
}

fn grouped(value: &Value) -> String {
    let number = value.as_u64().unwrap();
    if number < 1000 {
        number.to_string()
    } else {
        format!("{},{:03}", number / 1000, number % 1000)
    }
}

#[test]
fn a_report_page_shows_the_figures_of_the_json_and_runs_nothing() {
    let files = files();
    let report = files.json(&ARGUMENTS);
    let page = files.read("report.html");
    assert!(!page.contains("<script") && !page.contains("<svg HTTP"), "escaped: {page}");
    assert!(page.contains("&lt;script&gt;"), "shown as it was: {page}");

    let browser = Browser::start();
    // What a new tab loads is not of the page.
    browser.goto("about:blank");
    let _ = (browser.requests(), browser.console_errors());
    browser.goto(&format!("file://{}", files.path("report.html").display()));
    assert_eq!(browser.console_errors(), Vec::<String>::new());
    let loaded = browser.requests();
    assert!(loaded.iter().all(|url| url.ends_with("report.html")), "nothing else: {loaded:?}");

    for name in ["requests", "refused"] {
        let shown = browser.text(&format!("[data-part=totals] [data-figure={name}]"));
        assert_eq!(shown, grouped(&report[name]), "{name}");
    }
    for policy in report["policies"].as_array().unwrap() {
        let section = format!("[data-policy={}]", policy["policy"].as_str().unwrap());
        for name in ["requests", "refused", "identities", "identities_refused"] {
            let shown = browser.text(&format!("{section} [data-figure={name}]"));
            assert_eq!(shown, grouped(&policy[name]), "{section} {name}");
        }
        let minute = &policy["worst_minute"];
        let shown = browser.text(&format!("{section} [data-figure=worst_refused]"));
        assert_eq!(shown, grouped(&minute["refused"]));
        let cells = browser.texts(&format!("{section} .quotas td"));
        let expected: Vec<String> =
            policy["quotas"].as_array().unwrap().iter().flat_map(quota_row).collect();
        assert_eq!(cells, expected);
        let cells = browser.texts(&format!("{section} .most td"));
        let expected = policy["most_refused"].as_array().unwrap().iter();
        let expected: Vec<String> = expected.flat_map(identity_row).collect();
        assert_eq!(cells, expected);
    }
    let cells = browser.texts("table.sweep td:nth-child(2)");
    let steps = report["sweep"]["steps"].as_array().unwrap();
    assert_eq!(cells, steps.iter().map(|step| grouped(&step["refused"])).collect::<Vec<_>>());
    let cells = browser.texts("table.sweep td:nth-child(5)");
    let expected = steps.iter().map(|step| refused_first(&step["refused_first"]));
    assert_eq!(cells, expected.collect::<Vec<_>>());
    for name in ["only_candidate", "only_other"] {
        let shown = browser.text(&format!("[data-part=against] [data-figure={name}]"));
        assert_eq!(shown, grouped(&report["against"][name]["requests"]));
    }
}

fn quota_row(quota: &Value) -> Vec<String> {
    let never = &quota["never_refused"];
    let figures = [
        &never["p99"],
        &never["p99_9"],
        &never["all"],
        &quota["identities"],
        &quota["identities_above"],
    ];
    let name = quota["quota"].as_str().unwrap().to_owned();
    let first = refused_first(&quota["refused_first"]);
    [name].into_iter().chain(figures.map(grouped)).chain([first]).collect()
}

fn refused_first(first: &Value) -> String {
    let by = first["by"].as_array().unwrap().iter().map(|own| {
        format!("{} ({} requests)", own["policy"].as_str().unwrap(), grouped(&own["requests"]))
    });
    match grouped(&first["identities"]) {
        none if none == "0" => none,
        some => format!("{some}: {}", by.collect::<Vec<_>>().join(", ")),
    }
}

fn identity_row(own: &Value) -> Vec<String> {
    vec![
        own["identity"].as_str().unwrap().to_owned(),
        grouped(&own["refused"]),
        grouped(&own["requests"]),
    ]
}

#[test]
fn a_report_page_is_readable_dark_and_light_wide_and_narrow() {
    let files = files();
    let report = files.json(&ARGUMENTS);
    let browser = Browser::start();
    browser.goto(&format!("file://{}", files.path("report.html").display()));
    let quotas = report["policies"].as_array().unwrap().iter();
    let quotas: usize = quotas.map(|policy| policy["quotas"].as_array().unwrap().len()).sum();
    for (scheme, background, width) in [
        (ColorScheme::Light, "rgb(255, 255, 255)", 1280),
        (ColorScheme::Dark, "rgb(13, 17, 23)", 360),
    ] {
        browser.prefer(scheme);
        browser.resize(width, 900);
        let style = |css: &str, property: &str| {
            let script =
                "return getComputedStyle(document.querySelector(arguments[0]))[arguments[1]]";
            let value = browser.script(script, vec![css.into(), property.into()]);
            value.as_str().unwrap().to_owned()
        };
        assert_eq!(style("body", "backgroundColor"), background);
        assert_ne!(style("body", "color"), background);
        assert_ne!(style("svg .bar", "fill"), style("svg .bad", "fill"));
        // Every picture has a size, and at least one mark in it; the page itself never scrolls sideways.
        let script = "return [...document.querySelectorAll('svg')].map(svg => {
            const marks = [...svg.querySelectorAll('.bar, .point')].map(e => e.getBoundingClientRect());
            return [svg.getBoundingClientRect().width > 250, svg.getBoundingClientRect().height > 100,
                marks.length > 0, marks.every(m => m.width > 0 && m.height > 0)]
        })";
        let pictures = browser.script(script, vec![]);
        let pictures = pictures.as_array().unwrap();
        assert_eq!(pictures.len(), 2 + 2 * quotas, "over time, the sweep, and two for each quota");
        for picture in pictures {
            assert_eq!(picture.as_array().unwrap(), &[true, true, true, true].map(Value::from));
        }
        let script = "return document.documentElement.scrollWidth <= window.innerWidth";
        assert_eq!(browser.script(script, vec![]), true, "{width} pixels are enough");
    }
}
