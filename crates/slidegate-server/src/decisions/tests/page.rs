//! The page about this endpoint: its questions, and their answers.

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};
use slidegate::{ManualClock, MemoryStore, Timestamp};
use slidegate_tower::Headers;

use super::{DecisionsApi, Got};
use crate::config::{self, File, LimiterConfig, Sources};

const PAGE: &str = include_str!("../../../../../docs/decisions.md");

/// The id on the page.
const ID: &str = "Zk3vQm1xT0u9aYHc5nWd2wq8Lr7TfPz4sXoGJt1eVbU…";

/// The texts between fences of a language.
fn blocks(language: &str) -> impl Iterator<Item = &'static str> {
    let fence = format!("```{language}\n");
    let parts: Vec<&str> = PAGE.split(&*fence).skip(1).collect();
    parts.into_iter().map(|part| part.split_once("\n```").unwrap().0)
}

fn rules(clock: &ManualClock) -> LimiterConfig {
    let text = blocks("toml").next().unwrap().to_owned();
    let file = Some(File::Text { name: "docs/decisions.md".to_owned(), text });
    let loaded = config::load(&Sources { file, ..Sources::default() }).unwrap();
    let mut limiter = loaded.config.limiter;
    limiter.responder = limiter.responder.headers(Headers::default().clock(clock.clone()));
    limiter
}

/// The request that a curl line sends.
fn request(line: &str) -> Request<Full<Bytes>> {
    let (rest, url) = line.rsplit_once(' ').unwrap();
    let target = url.strip_prefix("http://127.0.0.1:8081").unwrap();
    let quoted = |part: &str| part.trim().trim_matches('\'').to_owned();
    if let Some((_, json)) = rest.split_once("--json") {
        let request = Request::post(target).header("content-type", "application/json");
        return request.body(Full::new(quoted(json).into())).unwrap();
    }
    let headers = rest.split("-H").skip(1).map(quoted);
    let request = headers.fold(Request::get(target), |request, header| {
        let (name, value) = header.split_once(": ").unwrap();
        request.header(name, value)
    });
    request.body(Full::new(Bytes::new())).unwrap()
}

/// What `curl -i` shows, but for the headers that a server adds, and the end of a long one.
fn shown(got: &Got) -> String {
    let mut text = format!("HTTP/1.1 {}\n", got.status);
    for (name, value) in got.headers.iter().filter(|(name, _)| *name != "content-length") {
        let value = value.to_str().unwrap();
        match name == "x-slidegate-refusal" {
            true => text += &format!("{name}: {}…\n", &value[..60]),
            false => text += &format!("{name}: {value}\n"),
        }
    }
    format!("{text}\n{}", got.text()).trim_end().to_owned()
}

#[tokio::test]
async fn every_answer_on_the_docs_page_is_the_one_that_is_given() {
    // A calendar day has begun, so that no stamp is rounded.
    let clock = ManualClock::new(Timestamp::from_millis(1_794_787_200_000));
    let api = DecisionsApi::new(rules(&clock), MemoryStore::builder().clock(clock).build());
    let (mut asked, mut id) = (0, String::new());
    for question in blocks("console").flat_map(|block| block.split("$ curl ").skip(1)) {
        let (line, answer) = question.split_once('\n').unwrap();
        // Ids are random.
        let got = api.send("127.0.0.1", request(&line.replace(ID, &id))).await;
        if line.starts_with("-i") {
            assert_eq!(shown(&got), answer.trim_end(), "{line}");
        } else {
            let expected: Value = serde_json::from_str(answer)
                .unwrap_or_else(|error| panic!("{error} in {answer}, not {}", got.text()));
            let mut got = got.json();
            if let Some(own) = got.get_mut("id") {
                id = own.as_str().unwrap().to_owned();
                *own = json!(ID);
            }
            assert_eq!(got, expected, "{line}");
        }
        asked += 1;
    }
    assert_eq!(asked, 16);
}
