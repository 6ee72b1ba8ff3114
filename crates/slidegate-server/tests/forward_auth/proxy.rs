//! What is checked of every proxy, and the table in docs/decisions.md that shows it.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use slidegate_testbed::Program;

use crate::site::Site;

/// Texts of an example, and what stands in their place.
pub(crate) type Edits = &'static [(&'static str, &'static str)];

/// How long a proxy may take whose authorization service is down: HAProxy tries for three seconds.
const STATUS_TIMEOUT: Duration = Duration::from_secs(20);
/// Ten times the timeout of the examples that have one.
const LONG: Duration = Duration::from_secs(5);
/// That timeout, less what a timer may be early.
const TIMEOUT: Duration = Duration::from_millis(450);

/// A proxy with its example.
pub(crate) struct Proxy {
    /// How its row in the table begins.
    pub(crate) row: &'static str,
    /// Adopts the example's files and starts the program with them.
    pub(crate) start: fn(&Site) -> Program,
    /// Puts the token of the example in force.
    pub(crate) with_token: Edits,
    /// Takes the example's other choice, if there is one: requests do not pass without Slidegate.
    pub(crate) failing_closed: Edits,
}

impl Proxy {
    /// Whatever the proxy, clients are limited. What else it does is as the table says.
    pub(crate) fn check(&self) {
        let site = Site::with_token(self.with_token);
        let proxy = (self.start)(&site);
        site.check_limits();
        drop((proxy, site));

        let mut site = Site::new();
        let _proxy = (self.start)(&site);
        let [standing, refusal] = site.check_limits();
        site.stop_slidegate();
        let gone = outcome(site.status_within(STATUS_TIMEOUT));
        let _silent = TcpListener::bind(site.decisions).unwrap();
        let asked = Instant::now();
        let mut silent = outcome(site.status_within(LONG));
        if silent == PASS {
            assert!(asked.elapsed() > TIMEOUT, "{:?}", asked.elapsed());
            silent += " after 0.5 s";
        }
        self.check_row(&[standing, refusal, gone, silent, self.failing_closed()]);
    }

    fn failing_closed(&self) -> String {
        if self.failing_closed.is_empty() {
            return "no choice".to_owned();
        }
        let mut site = Site::edited(self.failing_closed);
        site.stop_slidegate();
        let _proxy = (self.start)(&site);
        outcome(site.status_within(STATUS_TIMEOUT))
    }

    fn check_row(&self, seen: &[String]) {
        let row = format!("| {} | {} |", self.row, seen.join(" | "));
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/decisions.md");
        let page = fs::read_to_string(page).unwrap();
        assert!(page.lines().any(|line| line == row), "not in docs/decisions.md:\n{row}");
    }
}

const PASS: &str = "pass";

/// What becomes of a request without Slidegate, as the table has it.
fn outcome(status: Option<u16>) -> String {
    match status {
        None => format!("no response in {} s", LONG.as_secs()),
        Some(200) => PASS.to_owned(),
        Some(status) => status.to_string(),
    }
}
