//! A browser: what it shows, does and reports.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use slidegate_testbed::{Browser, ColorScheme, Directory, wait_until};

const PAGE: &str = "<!doctype html><title>a page</title><link rel=icon href=data:,>
<style>p { color: green } @media (prefers-color-scheme: dark) { p { color: lime } }</style>
<p data-kind=greeting>hello</p><label>name <input></label><button>go</button>
<script>document.querySelector('button').onclick = () => {
  document.querySelector('p').textContent = document.querySelector('input').value;
  console.error('clicked');
}</script>";

/// Serves the page to all who connect, for as long as the process lives.
fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close";
            let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{PAGE}", PAGE.len());
        }
    });
    url
}

#[test]
fn a_page_is_read_used_and_pictured() {
    let (browser, url, directory) = (Browser::start(), serve(), Directory::new());
    browser.goto(&url);
    assert_eq!(browser.text("p"), "hello");
    assert_eq!(browser.attribute("p", "data-kind").as_deref(), Some("greeting"));
    assert_eq!(browser.console_errors(), [""; 0]);
    browser.fill("input", "Grace");
    browser.click("button");
    assert_eq!(browser.texts("p"), ["Grace"]);
    assert!(!browser.has("table"));
    let errors = browser.console_errors();
    assert!(matches!(&errors[..], [error] if error.contains("clicked")), "{errors:?}");
    wait_until("the request", || browser.requests().contains(&url));

    let color =
        || browser.script("return getComputedStyle(document.querySelector('p')).color", vec![]);
    assert_eq!(color(), "rgb(0, 128, 0)");
    browser.prefer(ColorScheme::Dark);
    assert_eq!(color(), "rgb(0, 255, 0)");
    browser.resize(360, 640);
    assert_eq!(
        browser.script("return [innerWidth, innerHeight]", vec![]),
        serde_json::json!([360, 640])
    );
    let picture = directory.path().join("page.png");
    browser.screenshot(&picture);
    assert!(fs::read(&picture).unwrap().starts_with(b"\x89PNG"));
}
