//! A real browser: headless Chromium, driven over WebDriver.

use std::fs::{self, File};
use std::future::Future;
use std::path::Path;
use std::process::Command;

use fantoccini::elements::Element;
use fantoccini::error::{CmdError, ErrorStatus};
use fantoccini::wd::{Capabilities, WebDriverCompatibleCommand};
use fantoccini::{Client, ClientBuilder, Locator};
use http::Method;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::runtime::{self, Runtime};
use url::{ParseError, Url};

use crate::directory::Directory;
use crate::process::Process;
use crate::wait::wait_for;

/// A Chromium with a profile of its own and one tab. It ends on drop, or with this process.
///
/// Elements are named by CSS selectors. What acts on an element or reads it waits until it is there,
/// for a minute at most.
#[derive(Debug)]
pub struct Browser {
    client: Client,
    runtime: Runtime,
    // Fields are dropped in this order: the profile is removed when nothing writes to it.
    _driver: Process,
    _profile: Directory,
}

/// The reader's preferences that a page sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorScheme {
    /// Dark text on a light ground.
    Light,
    /// Light text on a dark ground.
    Dark,
}

const INSTALL: &str = "apt-get install chromium chromium-driver";

const ARGUMENTS: [&str; 11] = [
    "--headless=new",
    // Tests run as root in containers, where Chromium has no sandbox.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    // Without it Chromium would outlive a driver that is killed.
    "--remote-debugging-pipe",
];

impl Browser {
    /// Starts a browser with an empty page of 1280 by 800 pixels.
    #[must_use]
    pub fn start() -> Self {
        let profile = Directory::new();
        let (driver, port) = start_driver(&profile);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let mut sessions = ClientBuilder::new(HttpConnector::new());
        sessions.capabilities(capabilities(profile.path()));
        let client = runtime.block_on(sessions.connect(&format!("http://127.0.0.1:{port}")));
        let client =
            client.unwrap_or_else(|error| panic!("no Chromium: {error}; to install it: {INSTALL}"));
        let browser = Self { client, runtime, _driver: driver, _profile: profile };
        browser.resize(1280, 800);
        browser.goto("about:blank");
        // What the browser's own first page has requested.
        drop(browser.requests());
        browser
    }

    /// Opens an address, and returns when the page has loaded.
    pub fn goto(&self, url: &str) {
        self.run(&format!("go to {url}"), self.client.goto(url));
    }

    /// Loads the page again.
    pub fn reload(&self) {
        self.run("reload", self.client.refresh());
    }

    /// Whether there is such an element now.
    #[must_use]
    pub fn has(&self, css: &str) -> bool {
        self.find(css).is_some()
    }

    /// The visible text of the first such element.
    #[must_use]
    pub fn text(&self, css: &str) -> String {
        self.with_element(css, async |element| element.text().await)
    }

    /// The visible texts of all such elements; none if there is no such element now.
    #[must_use]
    pub fn texts(&self, css: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)";
        let texts = self.script(script, vec![css.into()]);
        serde_json::from_value(texts).expect("a list of texts")
    }

    /// An attribute of the first such element.
    #[must_use]
    pub fn attribute(&self, css: &str, name: &str) -> Option<String> {
        self.with_element(css, async |element| element.attr(name).await)
    }

    /// Clicks on the middle of the first such element.
    pub fn click(&self, css: &str) {
        self.with_element(css, async |element| element.click().await);
    }

    /// Replaces the text of a field.
    pub fn fill(&self, css: &str, text: &str) {
        self.with_element(css, async |element| {
            element.clear().await?;
            element.send_keys(text).await
        });
    }

    /// Presses keys while the element has the focus: text, or the private characters that WebDriver
    /// gives to keys, such as `\u{E007}` for Enter.
    pub fn press(&self, css: &str, keys: &str) {
        self.with_element(css, async |element| element.send_keys(keys).await);
    }

    /// Runs the body of a function in the page, and returns what it returns.
    pub fn script(&self, body: &str, arguments: Vec<Value>) -> Value {
        self.run(body, self.client.execute(body, arguments))
    }

    /// Gives the page so many CSS pixels, however narrow.
    pub fn resize(&self, width: u32, height: u32) {
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
    }

    /// Tells the page which colours its reader prefers.
    pub fn prefer(&self, scheme: ColorScheme) {
        let value = match scheme {
            ColorScheme::Light => "light",
            ColorScheme::Dark => "dark",
        };
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": value}]});
        self.devtools("Emulation.setEmulatedMedia", &features);
    }

    /// Writes what can be seen of the page to a PNG file.
    pub fn screenshot(&self, path: impl AsRef<Path>) {
        let (path, png) = (path.as_ref(), self.run("screenshot", self.client.screenshot()));
        fs::write(path, png).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// The errors on the console since the last call, those of failed requests included.
    #[must_use]
    pub fn console_errors(&self) -> Vec<String> {
        let entries = self.log("browser");
        let errors = entries.iter().filter(|entry| entry["level"] == "SEVERE");
        errors.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The addresses that the page has requested since the last call, its own included.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        let entries = self.log("performance");
        let messages = entries.iter().filter_map(|entry| entry["message"].as_str());
        let events = messages.filter_map(|message| serde_json::from_str::<Value>(message).ok());
        let urls = events.filter_map(|event| {
            let event = &event["message"];
            let is_request = event["method"] == "Network.requestWillBeSent";
            is_request.then(|| event["params"]["request"]["url"].as_str().map(str::to_owned))?
        });
        urls.collect()
    }

    /// Sends a command of the DevTools protocol.
    pub fn devtools(&self, command: &str, parameters: &Value) -> Value {
        let body = json!({"cmd": command, "params": parameters});
        self.run(command, self.client.issue_cmd(DriverCommand { path: "goog/cdp/execute", body }))
    }

    fn log(&self, kind: &str) -> Vec<Value> {
        let command = DriverCommand { path: "se/log", body: json!({"type": kind}) };
        match self.run(kind, self.client.issue_cmd(command)) {
            Value::Array(entries) => entries,
            other => panic!("the {kind} log is {other}"),
        }
    }

    fn find(&self, css: &str) -> Option<Element> {
        match self.runtime.block_on(self.client.find(Locator::Css(css))) {
            Ok(element) => Some(element),
            Err(error) if error.is_no_such_element() => None,
            Err(error) => panic!("cannot find {css}: {error}"),
        }
    }

    /// The page may replace an element, or show it, while it is looked at: then once more.
    fn with_element<T>(
        &self,
        css: &str,
        mut act: impl AsyncFnMut(&Element) -> Result<T, CmdError>,
    ) -> T {
        wait_for(&format!("the element {css}"), || {
            let element = self.find(css)?;
            match self.runtime.block_on(act(&element)) {
                Ok(result) => Some(result),
                Err(error) if is_passing(&error) => None,
                Err(error) => panic!("{css}: {error}"),
            }
        })
    }

    fn run<T>(&self, what: &str, command: impl Future<Output = Result<T, CmdError>>) -> T {
        self.runtime.block_on(command).unwrap_or_else(|error| panic!("{what}: {error}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Chromium writes its profile at its end. If this fails, it ends with the driver.
        let _ = self.runtime.block_on(self.client.clone().close());
    }
}

fn is_passing(error: &CmdError) -> bool {
    let is_covered = |error: &CmdError| matches!(error, CmdError::Standard(e) if e.error == ErrorStatus::ElementClickIntercepted);
    error.is_stale_element_reference() || error.is_element_not_interactable() || is_covered(error)
}

/// A driver on a port of its choice.
fn start_driver(directory: &Directory) -> (Process, u16) {
    let output = directory.file("driver.log");
    let log = File::create(&output).expect("the directory is writable");
    let mut command = Command::new("chromedriver");
    command.arg("--port=0").stderr(log.try_clone().expect("a file handle to spare")).stdout(log);
    let mut driver = Process::spawn(&mut command, INSTALL, directory);
    let port = wait_for("chromedriver to listen", || {
        let text = fs::read_to_string(&output).unwrap_or_default();
        assert!(driver.is_running(), "chromedriver ended:\n{text}");
        let (_, rest) = text.split_once("started successfully on port ")?;
        rest.split_once('.')?.0.parse().ok()
    });
    (driver, port)
}

fn capabilities(profile: &Path) -> Capabilities {
    let profile = format!("--user-data-dir={}", profile.join("chromium").display());
    let arguments: Vec<&str> = ARGUMENTS.into_iter().chain([profile.as_str()]).collect();
    let capabilities = json!({
        "browserName": "chrome",
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        "goog:chromeOptions": {"args": arguments},
    });
    serde_json::from_value(capabilities).expect("an object")
}

/// A command that is the driver's own, and no part of WebDriver.
#[derive(Debug)]
struct DriverCommand {
    path: &'static str,
    body: Value,
}

impl WebDriverCompatibleCommand for DriverCommand {
    fn endpoint(&self, driver: &Url, session: Option<&str>) -> Result<Url, ParseError> {
        let session = session.expect("a session is open while there is a client");
        driver.join(&format!("session/{session}/{}", self.path))
    }

    fn method_and_body(&self, _: &Url) -> (Method, Option<String>) {
        (Method::POST, Some(self.body.to_string()))
    }
}
