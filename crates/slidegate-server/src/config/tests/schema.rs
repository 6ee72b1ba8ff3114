//! The JSON Schema, held against the reader: its keys, words, defaults and values are the reader's.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::Value as Json;
use toml::Value as Toml;

use crate::config::reader::Reader;
use crate::config::tree::{Content, Node};
use crate::config::{
    Config, File, LimiterConfig, SCHEMA, SCHEMA_LINE, Sources, StoreConfig, load, read,
};

static ROOT: LazyLock<Json> = LazyLock::new(|| serde_json::from_str(SCHEMA).unwrap());
static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| jsonschema::validator_for(&ROOT).unwrap());

/// Together they have every table, and every key with a default beside what it needs.
const BASES: [&str; 9] = [
    "[gateway]\nupstream = 'http://a'\nroute = [{ prefix = '/b', upstream = 'http://b' }]\n\
     tls = { certificate = 'a.pem', key = 'a.key' }\ntimeouts = {}\nbounds = {}\n[standing]\n[trace]\notlp = 'http://a'\n",
    "[decisions]\n[resp]\n[rls]\n[rls.tls]\ncertificate = 'a.pem'\nkey = 'a.key'\n[admin]\n[headers]\n\
     [refusal]\nshape = 'text'\n[log]\n[audit]\nfile = 'a'\n",
    "[store]\nsnapshot = { file = 'a' }\n[refusal]\ntemplate = 'x'\n[exempt]\n[blocked.headers]\nx-a = 'b'\n",
    "[store]\nurl = 'redis://a'\nlayout = 'sorted-set'\nkey_templates = { a = 'b:<identity>' }\n\
     [[policy]]\nname = 'a'\nquotas = '9/min'\n",
    "unknown_keys = 'own'\n[plans.a]\nquotas = '9/min'\n[[api_key]]\ncustomer = 'b'\nkey = 'c'\n[[policy]]\n\
     name = 'd'\nplan = { default = 'a' }\nidentity = ['api-key', { ip = {} }, { header = 'x-e' }]\n",
    "[key_source]\nurl = 'postgres://a@b/c'\nquery = 'select 1'\n",
    "[key_source]\nurl = 'https://a/{digest}'\n",
    "[[jwt]]\nissuer = 'a'\njwks = 'https://a/'\naudience = 'b'\nalgorithms = ['RS256']\nuser = 'sub'\n\
     [[policy]]\nname = 'a'\nquotas = '9/min'\nconsistency = 'async'\nmatch = { path = '/a' }\n\
     cost = { response_json = 'a', hold = 1 }\ncount = { status = 401 }\nban = { after = '5/min' }\n\
     candidate = { quotas = '8/min' }\nrefusal = { template = 'x' }\nexempt = {}\n\
     [[policy]]\nname = 'b'\nquotas = '9/min'\nrefund = { status = '5xx' }\n",
    "[[policy]]\nname = 'a'\nquotas = '9/min'\n\
     match = { domain = 'a', descriptors = { b = '*', c = '*' }, except = { b = 'd' } }\n",
];

/// What is wrong with a file by the schema.
pub(super) fn problems(text: &str) -> Vec<String> {
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let problem =
        |error: jsonschema::ValidationError<'_>| format!("{}: {error}", error.instance_path());
    VALIDATOR.iter_errors(&json(Toml::Table(table))).map(problem).collect()
}

/// A TOML value as taplo hands it to a schema.
fn json(value: Toml) -> Json {
    match value {
        Toml::Array(values) => values.into_iter().map(json).collect(),
        Toml::Table(table) => table.into_iter().map(|(key, value)| (key, json(value))).collect(),
        Toml::Datetime(at) => at.to_string().into(),
        other => serde_json::to_value(other).unwrap(),
    }
}

/// A part of the schema, and where it is.
type SchemaPart = (String, &'static Json);

fn follow((place, schema): SchemaPart) -> SchemaPart {
    match schema["$ref"].as_str().and_then(|target| target.strip_prefix('#')) {
        Some(target) => (target.to_owned(), ROOT.pointer(target).unwrap()),
        None => (place, schema),
    }
}

fn below((place, schema): &SchemaPart, key: &str) -> Option<SchemaPart> {
    Some((format!("{place}/{key}"), schema.get(key)?))
}

/// The alternatives of which a value is one.
fn alternatives(place: SchemaPart) -> Vec<SchemaPart> {
    let place = follow(place);
    let Some(any) = place.1["anyOf"].as_array() else { return vec![place] };
    let inner = any.iter().enumerate().map(|(i, one)| (format!("{}/anyOf/{i}", place.0), one));
    let inner = inner
        .filter(|(_, one)| one.as_object().unwrap().keys().ne(["required"]))
        .flat_map(alternatives);
    std::iter::once(place.clone()).chain(inner).collect()
}

/// The one alternative with this keyword.
fn with_keyword(place: &SchemaPart, keyword: &str) -> Option<SchemaPart> {
    let mut found = alternatives(place.clone());
    found
        .retain(|(_, schema)| schema.get(keyword).is_some_and(|value| *value != Json::Bool(false)));
    assert!(found.len() < 2, "{} has several {keyword}", place.0);
    found.pop()
}

fn property((place, schema): &SchemaPart, key: &str) -> SchemaPart {
    let found = schema["properties"].get(key).unwrap_or_else(|| panic!("{place}: no {key}"));
    (format!("{place}/properties/{key}"), found)
}

/// All parts of the schema that values are held against, by their places.
fn all_places() -> BTreeMap<String, &'static Json> {
    let (mut found, mut rest) = (BTreeMap::new(), vec![(String::new(), &*ROOT)]);
    while let Some(place) = rest.pop() {
        let place = follow(place);
        if found.insert(place.0.clone(), place.1).is_some() {
            continue;
        }
        rest.extend(alternatives(place.clone()));
        rest.extend(["items", "additionalProperties"].iter().filter_map(|key| below(&place, key)));
        let keys = place.1["properties"].as_object().into_iter().flat_map(|keys| keys.keys());
        rest.extend(keys.map(|key| property(&place, key)));
    }
    found
}

/// Records which keys the reader asked the tables of a file for, by their places in the schema.
fn record(place: &SchemaPart, node: &Node, asked: &mut BTreeMap<String, BTreeSet<&'static str>>) {
    let items = with_keyword(place, "items").and_then(|list| below(&list, "items"));
    match &node.content {
        Content::List(nodes) => {
            let items = items.unwrap_or_else(|| panic!("{}: no list is expected", place.0));
            nodes.iter().for_each(|node| record(&items, node, asked));
        }
        Content::Table(table) if table.asked.borrow().is_empty() => {
            let names = with_keyword(place, "additionalProperties");
            let names = names.unwrap_or_else(|| panic!("{}: no names are expected", place.0));
            let value = below(&names, "additionalProperties").unwrap();
            table.entries.iter().for_each(|(_, node)| record(&value, node, asked));
        }
        Content::Table(table) => {
            let place = with_keyword(place, "properties");
            let place = place.unwrap_or_else(|| panic!("{}: no keys are expected", node.location));
            asked.entry(place.0.clone()).or_default().extend(&*table.asked.borrow());
            for (key, node) in &table.entries {
                record(&property(&place, key), node, asked);
            }
        }
        _ => {}
    }
}

#[test]
fn every_table_has_the_keys_that_the_reader_asks_for() {
    let mut asked = BTreeMap::new();
    for text in BASES {
        let reader = Reader::skipping_files();
        let tree = reader.parse("base.toml".as_ref(), text);
        assert!(read(&reader.root(&tree), true).is_some(), "{text}");
        record(&(String::new(), &ROOT), &tree, &mut asked);
        assert_eq!(reader.finish().0.len(), 0, "{text}");
    }
    let tables = all_places().into_iter().filter(|(_, schema)| schema.get("properties").is_some());
    for (place, schema) in tables {
        let keys: BTreeSet<&str> =
            schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let asked = asked.get(&place).unwrap_or_else(|| panic!("no file has the table {place}"));
        assert_eq!(*asked, keys, "keys of the reader and of the schema's {place}");
        assert_eq!(schema["additionalProperties"], false, "{place}");
    }
}

#[test]
fn every_key_is_described() {
    for (place, schema) in all_places() {
        for key in schema["properties"].as_object().into_iter().flat_map(|keys| keys.keys()) {
            let property = property(&(place.clone(), schema), key);
            let text = property.1["description"].as_str().unwrap_or_default();
            let is_plain = place == "/definitions/prefixes" || place == "/definitions/statuses";
            assert!(text.ends_with('.') || is_plain && !text.is_empty(), "{place}: {key}");
        }
        assert!(schema.get("allOf").is_none(), "{place}: taplo does not complete an allOf");
    }
}

/// A table of a file, by the way to it, and its part of the schema.
struct FileTable {
    text: &'static str,
    steps: Vec<PathStep>,
    place: SchemaPart,
}

#[derive(Clone, Debug)]
enum PathStep {
    Key(String),
    Index(usize),
}

/// All tables of all files.
fn file_tables() -> Vec<FileTable> {
    fn add(
        found: &mut Vec<FileTable>,
        text: &'static str,
        steps: &[PathStep],
        place: &SchemaPart,
        value: &Toml,
    ) {
        let to = |step| steps.iter().cloned().chain([step]).collect::<Vec<_>>();
        match value {
            Toml::Array(values) => {
                let items = below(&with_keyword(place, "items").unwrap(), "items").unwrap();
                for (i, value) in values.iter().enumerate() {
                    add(found, text, &to(PathStep::Index(i)), &items, value);
                }
            }
            Toml::Table(table) => {
                let keys = with_keyword(place, "properties");
                for (key, value) in table {
                    let below = match &keys {
                        Some(keys) => property(keys, key),
                        None => below(&follow(place.clone()), "additionalProperties").unwrap(),
                    };
                    add(found, text, &to(PathStep::Key(key.clone())), &below, value);
                }
                let place = keys.into_iter();
                found.extend(place.map(|place| FileTable { text, steps: steps.to_vec(), place }));
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    for text in BASES {
        let value = Toml::Table(text.parse().unwrap());
        add(&mut found, text, &[], &(String::new(), &*ROOT), &value);
    }
    found
}

impl FileTable {
    fn keys(&self) -> impl Iterator<Item = (&'static str, SchemaPart)> {
        let keys = self.place.1["properties"].as_object().unwrap().keys();
        keys.map(|key| (key.as_str(), property(&self.place, key)))
    }

    /// The file with another value of this key, or without one.
    fn with(&self, key: &str, value: Option<&Toml>) -> String {
        let mut root = Toml::Table(self.text.parse().unwrap());
        let table = self.steps.iter().fold(&mut root, |value, step| match step {
            PathStep::Key(key) => &mut value[key.as_str()],
            PathStep::Index(i) => &mut value[*i],
        });
        let table = table.as_table_mut().unwrap();
        match value {
            Some(value) => table.insert(key.to_owned(), value.clone()),
            None => table.remove(key),
        };
        toml::to_string(&root).unwrap()
    }

    /// The key as errors have it.
    fn named(&self, key: &str) -> String {
        let steps = self.steps.iter().cloned().chain([PathStep::Key(key.to_owned())]);
        steps.fold(String::new(), |name, step| match step {
            PathStep::Key(key) if name.is_empty() => key,
            PathStep::Key(key) => format!("{name}.{key}"),
            PathStep::Index(i) => format!("{name}[{i}]"),
        })
    }

    /// What the reader says of a value of this key: nothing if it is good.
    fn complaint(&self, key: &str, value: &Toml) -> Option<String> {
        let problems = loaded(&self.with(key, Some(value))).map(drop).err()?;
        let name = self.named(key);
        let about = |line: &&str| {
            let line = line.split_once(": ").map_or("", |(_, line)| line);
            let rest = line.strip_prefix(&name);
            rest.is_some_and(|rest| rest.starts_with([' ', ':', '.', '[']))
        };
        problems.lines().find(about).map(str::to_owned)
    }
}

/// What a file comes to on a machine that has none of the files it names.
fn loaded(text: &str) -> Result<Config, String> {
    let file = File::Text { name: "test.toml".to_owned(), text: text.to_owned() };
    let sources = Sources { file: Some(file), skip_files: true, ..Sources::default() };
    load(&sources).map(|loaded| loaded.config).map_err(|problems| problems.to_string())
}

/// The words of `expected a, b or c`, but for those that stand for others, such as header:NAME.
fn expected_words(complaint: &str) -> BTreeSet<&str> {
    let at = complaint.rfind("expected ").map(|at| at + "expected ".len());
    let at = at.or(complaint.rfind("one of ").map(|at| at + "one of ".len()));
    let list = at.map_or("", |at| &complaint[at..]);
    let list = list.split(';').next().unwrap_or_default();
    let words = list.split([',', ' ', '(', ')']);
    words.filter(|word| !word.is_empty() && *word != "or" && !word.contains(':')).collect()
}

/// The words of a value, or of the elements of a list.
fn words(place: &SchemaPart) -> BTreeSet<&'static str> {
    let lists = alternatives(place.clone());
    let items = lists.iter().filter_map(|list| below(list, "items")).flat_map(alternatives);
    let words = lists.iter().cloned().chain(items).filter_map(|(_, one)| one["enum"].as_array());
    words.flatten().filter_map(Json::as_str).collect()
}

#[test]
fn words_are_those_that_the_reader_takes_and_names() {
    /// Their errors have an example in place of a list.
    const WITHOUT_LIST: [&str; 3] = ["cost", "method", "methods"];
    let (mut taken, mut named, mut expected) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for table in file_tables() {
        for (key, place) in table.keys() {
            let words = words(&place);
            expected.extend(words.iter().map(|word| (place.0.clone(), *word)));
            let is_taken = |word: &&str| table.complaint(key, &Toml::from(*word)).is_none();
            taken
                .extend(words.iter().copied().filter(is_taken).map(|word| (place.0.clone(), word)));
            if words.is_empty() {
                continue;
            }
            let said = table.complaint(key, &Toml::from("no such word"));
            match said {
                // It is not about the word, but about another key beside it.
                Some(said) if said.contains(": only for") || said.contains("is given too") => {}
                Some(said) if !WITHOUT_LIST.contains(&key) => {
                    assert_eq!(expected_words(&said), words, "{said}");
                    named.insert(place.0);
                }
                Some(_) => {}
                None => panic!("{} takes any word", place.0),
            }
        }
    }
    let untaken: Vec<_> = expected.difference(&taken).collect();
    assert!(untaken.is_empty(), "no file where the reader takes {untaken:?}");
    let all: BTreeSet<String> = expected.into_iter().map(|(place, _)| place).collect();
    let without_list = |place: &String| WITHOUT_LIST.iter().any(|key| place.ends_with(key));
    let named_or_not = all.iter().filter(|place| !without_list(place)).cloned().collect();
    assert_eq!(named, named_or_not);
}

/// Whether two configurations are the same.
fn are_same(one: &Config, other: &Config) -> bool {
    let (a, b) = (&one.server, &other.server);
    a.gateway == b.gateway
        && a.decisions == b.decisions
        && a.settle_within == b.settle_within
        && a.resp == b.resp
        && a.rls == b.rls
        && a.admin == b.admin
        && explicit(&a.store) == explicit(&b.store)
        && a.customers == b.customers
        && a.local_capacity == b.local_capacity
        && a.drain_delay == b.drain_delay
        && a.trace == b.trace
        && a.log == b.log
        && a.audit == b.audit
        && words_of(&one.limiter) == words_of(&other.limiter)
}

/// With those defaults that the Redis store fills in by itself.
fn explicit(store: &StoreConfig) -> StoreConfig {
    let mut store = store.clone();
    if let StoreConfig::Redis(redis) = &mut store {
        redis.score_unit = Some(redis.score_unit.unwrap_or_default());
        redis.key_template = Some(redis.key_template.take().unwrap_or_default());
    }
    store
}

/// All that is in policies and responses, in an order that is not that of a hash table.
fn words_of(limiter: &LimiterConfig) -> Vec<String> {
    let text = format!("{limiter:?}");
    let mut words: Vec<String> =
        text.split([' ', ',', '{', '}', '[', ']', '(', ')']).map(str::to_owned).collect();
    words.sort();
    words
}

#[test]
fn defaults_are_what_a_file_without_the_key_has() {
    let (mut equal, mut expected) = (BTreeSet::new(), BTreeSet::new());
    for table in file_tables() {
        for (key, place) in table.keys().filter(|(_, place)| place.1.get("default").is_some()) {
            expected.insert(place.0.clone());
            let default = &place.1["default"];
            let written: Toml = serde_json::from_value(default.clone()).unwrap();
            let without = loaded(&table.with(key, None));
            let (Ok(without), Ok(with)) = (without, loaded(&table.with(key, Some(&written))))
            else {
                // A default that does not go with another key of this file.
                continue;
            };
            // What is said of requests is not so of descriptors.
            let is_of_descriptors = key == "identity" && table.text.contains("descriptors");
            assert!(are_same(&without, &with) || is_of_descriptors, "{} = {default}", place.0);
            let words = words(&place).into_iter().map(Toml::from);
            let others = words.chain(values_like(default));
            let mut others = others.filter(|other| *other != written);
            let is_other = |other: Toml| {
                let with = loaded(&table.with(key, Some(&other)));
                with.is_ok_and(|with| !are_same(&without, &with))
            };
            if others.any(is_other) {
                equal.insert(place.0);
            }
        }
    }
    let unproven: Vec<&String> = expected.difference(&equal).collect();
    assert!(
        unproven.is_empty(),
        "no file where this is the default, and another is not: {unproven:?}"
    );
}

/// Values of the same kind, some of which are good.
fn values_like(default: &Json) -> Vec<Toml> {
    let texts = |texts: &[&str]| texts.iter().map(|text| Toml::from(*text)).collect();
    match default {
        Json::Bool(value) => vec![Toml::from(!value)],
        Json::Number(number) => vec![Toml::from(number.as_i64().unwrap() - 1), Toml::from(2)],
        Json::Array(_) => texts(&["x-real-ip", "x-ratelimit-delta", "10.0.0.0/8", "other"]),
        _ => TEXTS.split('|').map(Toml::from).collect(),
    }
}

/// Good and bad values of every kind, with a bar between them.
const TEXTS: &str = "| |\n|a|-a|a b|x-a|x_a|\u{e9}|a\n|a.b|a..b|.a|other|\
    1/s|0/s|5|10/mn|4294967295/s|4294967296/s|1_000/min|1__0/s| 5 / 2 h |+1/s|1/366d|1/367d|1/0s|\
    1/31622400000ms|1/31622400001ms|1/53w|1/year|1/2year|1/1.5s|99ms|100ms|999ms|1s|60s|61s|60001ms|\
    1min|61min|1h|3600001ms|24h|25h|1d|86400001ms|1w|366d|367d|1year|0s|00s|010s|5 min|s|1.5s|-1s|\
    127.0.0.1:1|127.0.0.1:65535|127.0.0.1:65536|256.0.0.1:1|01.0.0.1:1|1.2.3:4|:80|a:80|[::]:80|[::1]|\
    [1:2]:80|[1::2::3]:80|[fe80::1%3]:80|[1:2:3:4:5:6:7:8]:1|[1:2:3:4:5:6:7::8]:1|[1:2:3:4:5:6:7::]:1|\
    [::ffff:1.2.3.4]:1|[1::2:3:4:5:6:1.2.3.4]:1|[::ffff:1.2.3.256]:1|localhost:1|localhost|unix:/a|unix:a|\
    10.0.0.0/8|10.0.0.0/33|10.0.0.1/8|10.0.0.0/08|10.0.0/8|203.0.113.7|203.0.113.256|::/0|2001:db8::/32|\
    2001:db8::/129|::1|1::2::3|1:2:3:4:5:6:7:8:9|::ffff:0:0/96|\
    /|/a|/a/{b}|/a/{*b}|/a/*|/a/:b|/{|/}|/{}|/{*a}/b|/a?b|/a#b|//a|/a/../b|/a/.|/{{a}}|/a/{b}c|\
    GET|get|PURGE|GTE|http://a|https://a:1/|http://a/b|http://a:99999|http://a:0|http://[::1]:80|http://|\
    ftp://a|https://a/{digest}|https://a/b c|mysql://a|postgres://a@b/c|redis://a|rediss://a|\
    redis-cluster://a,b|unix:///a|\
    {retry_after}|{seconds}|{ab{seconds}|{}|{a b}|<identity>|<identity|<policy>|<x>|\
    off|INFO|warning|info,hyper=warn|slidegate=debug|hyper=debug|info,|401|5xx|2XX|6xx|099|600|\
    1/4|1/0|2/4|1/4294967296|a.csv|a.txt|.csv|\
    2027-01-01T00:00:00Z|2027-01-01|2027-13-01T00:00:00Z|2027-01-01T00:00:00+02:00|\
    a2e3ac06bb3a3d74863f2e5db2e3fcbe|a2e3ac06bb3a3d74863f2e5db2e3fcb|\
    websocket|h2c|TLS/1.0|a/b|header:x-a|header:|descriptor:b|cookie|\
    Basic YTpi|Basic YTp|Bearer abc|X-Forwarded-For";

const NUMBERS: &[i64] = &[
    -1,
    0,
    1,
    31,
    32,
    33,
    99,
    100,
    128,
    129,
    599,
    600,
    1024,
    1025,
    4095,
    4096,
    8191,
    8192,
    10_000,
    10_001,
    10_000_000,
    10_000_001,
    16_777_216,
    16_777_217,
    2_147_483_647,
    2_147_483_648,
    4_294_967_295,
    4_294_967_296,
    i64::MAX,
];

/// What the reader says of values whose form is good: what they mean is wrong, and no schema knows that.
const OF_MEANING: &[&str] = &[
    // What is elsewhere in the file.
    "there is no such plan",
    "there is no such policy",
    "another route has this prefix",
    "another policy has this name",
    "expected at most connections",
    "expected at most in_flight",
    "the gateway drops headers with underscores",
    "requests have no descriptors",
    "descriptors have no method",
    "descriptors have only",
    "could ever pass",
    "need windows of at least",
    "there is no gateway that could answer",
    "only for an https collector",
    "only for kind =",
    "certificates are given, but the URL",
    "would spread the windows",
    // What a flag or a variable can add.
    "gateway.upstream: missing",
    "no token is set",
    // Arithmetic and the calendar.
    "bits after the prefix are set",
    "it has all of ::ffff:0:0/96",
    // Slips that are good in themselves.
    "one letter away from",
    "this header carries a secret",
];

/// Every how many-th value is tried for a key even if it has a bad form, or if the key takes any text: all
/// of them take a quarter of a minute.
const STRIDE: usize = 3;

#[test]
fn values_are_good_for_the_schema_exactly_if_their_form_is_good_for_the_reader() {
    let lists = [vec![Toml::from("a")], vec![Toml::from("1/s")], vec![]];
    let mut few: Vec<Toml> = lists.map(Toml::Array).into();
    few.extend([Toml::from("a"), Toml::from(true), Toml::from(1.5), Toml::from(7)]);
    few.push(Toml::Table(toml::Table::new()));
    let numbers = NUMBERS.iter().map(|number| Toml::from(*number));
    let numbers: Vec<Toml> = numbers.chain(few.clone()).collect();
    let texts = TEXTS.split('|').map(Toml::from);
    let values: Vec<Toml> = texts.chain(numbers.clone()).collect();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for table in file_tables() {
        for (key, place) in table.keys() {
            // What a definition says is the same for every key that it is of.
            let all = alternatives(place.clone());
            let items = all.iter().filter_map(|list| below(list, "items")).flat_map(alternatives);
            let parts: Vec<String> = all.iter().cloned().chain(items).map(|part| part.0).collect();
            let (shared, own): (Vec<_>, Vec<_>) =
                parts.into_iter().partition(|part| part.starts_with("/definitions/"));
            let is_shared = !shared.is_empty();
            let parts = if is_shared { shared } else { own };
            let before = seen.len();
            seen.extend(parts);
            let is_new = seen.len() > before;
            let values = match kind(&place) {
                _ if !is_new => &few[..],
                "integer" => &numbers[..],
                "string" | "" => &values[..],
                _ => &few[..],
            };
            let is_any_text =
                !is_shared && ["pattern", "anyOf"].iter().all(|key| place.1.get(key).is_none());
            for (i, value) in values.iter().enumerate() {
                let text = table.with(key, Some(value));
                let is_good = is_good(&text);
                let is_tried = (i + key.len()).is_multiple_of(STRIDE);
                if is_tried || is_good && !is_any_text {
                    wrong.extend(disagreement(&text, is_good));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}

/// The one type that a value has: nothing if it has several, and `word` if it is one of some words.
fn kind(place: &SchemaPart) -> &'static str {
    let (_, schema) = follow(place.clone());
    if schema["enum"].is_array() { "word" } else { schema["type"].as_str().unwrap_or_default() }
}

fn is_good(text: &str) -> bool {
    VALIDATOR.is_valid(&json(Toml::Table(text.parse().unwrap())))
}

/// What the reader says differently about the form of a file that is good for the schema, or is not.
fn disagreement(text: &str, is_good: bool) -> Option<String> {
    match loaded(text) {
        Ok(_) if is_good => None,
        // Beside a plan, an empty list is no quota for the reader; an editor marks it.
        Ok(_) if text.contains("quotas = []") && text.contains("plan") => None,
        Ok(_) => Some(format!("the schema refuses {text}: {:?}", problems(text))),
        Err(_) if !is_good => None,
        Err(said) => {
            let is_of_meaning = |line: &&str| OF_MEANING.iter().any(|known| line.contains(known));
            let mut lines = said.lines().filter(|line| !line.ends_with(" problems:"));
            lines.find(|line| !is_of_meaning(line)).map(|line| format!("the schema takes {line}"))
        }
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a folder with this ending.
fn files(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let found = entries.flat_map(|path| match path.is_dir() {
        true => files(&path, ending),
        false => vec![path],
    });
    found.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

#[test]
fn the_published_copy_is_the_schema_that_the_program_prints() {
    let copy = fs::read_to_string(repository().join("docs/slidegate.schema.json")).unwrap();
    assert!(
        copy == SCHEMA,
        "cp crates/slidegate-server/src/config/schema.json docs/slidegate.schema.json"
    );
    let address = SCHEMA_LINE.strip_prefix("#:schema ").unwrap();
    assert_eq!(ROOT["$id"], address);
    assert!(address.ends_with("/docs/slidegate.schema.json"));
    jsonschema::meta::validate(&ROOT).unwrap();
}

#[test]
fn examples_and_packaging_name_the_schema_and_are_good_by_it() {
    let folders = ["examples/configs", "examples/envoy-ratelimit", "packaging"];
    let found = folders.iter().flat_map(|folder| files(&repository().join(folder), ".toml"));
    // The cases of `slidegate test` are not configurations.
    let found: Vec<PathBuf> =
        found.filter(|path| !path.to_str().unwrap().ends_with(".test.toml")).collect();
    assert!(found.len() >= 10, "{found:?}");
    for path in found {
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().next(), Some(SCHEMA_LINE), "{path:?}");
        assert_eq!(problems(&text), [""; 0], "{path:?}");
    }
}
