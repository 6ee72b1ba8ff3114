//! Lines of JSON: Caddy's and Traefik's, Slidegate's own, and any other whose fields are mapped.

use std::sync::Arc;

use http::HeaderName;
use serde_json::Value;
use slidegate::{Identity, Policies};

use crate::entry::{BadLine, FieldUse, LogEntry, NO_TIME};
use crate::format::{FormatRequest, LineKind};
use crate::time::TimeReader;

/// Where the fields of a line are.
#[derive(Debug)]
pub(crate) struct JsonFields {
    shape: JsonShape,
    /// For each use the places to look, of which the first that has something counts.
    fields: Vec<(FieldUse, Vec<FieldPath>)>,
    /// Those that give API keys their names, for the audit trail.
    policies: Arc<Policies>,
}

/// Who wrote the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JsonShape {
    Caddy,
    Traefik,
    Access,
    Audit,
    Other,
}

/// `request.headers.X-Api-Key`: names from the outermost object to a value.
#[derive(Debug)]
struct FieldPath(Vec<String>);

impl FieldPath {
    fn new(text: &str) -> Self {
        Self(text.split('.').map(str::to_owned).collect())
    }

    /// The value at this path; of a list, its first element.
    fn find<'v>(&self, line: &'v Value) -> Option<&'v Value> {
        let whole = (self.0.len() > 1).then(|| line.get(self.0.join("."))).flatten();
        let found =
            whole.or_else(|| self.0.iter().try_fold(line, |value, name| value.get(name)))?;
        if let Value::Array(list) = found { list.first() } else { Some(found) }
    }
}

impl JsonShape {
    /// The shape of a line, if it is known.
    pub(crate) fn of(line: &Value) -> Option<Self> {
        let has = |name: &str| line.get(name).is_some();
        if has("event") && has("time") {
            Some(Self::Audit)
        } else if has("target") && has("timestamp") && has("level") {
            Some(Self::Access)
        } else if has("RequestMethod") {
            Some(Self::Traefik)
        } else if has("request") && has("ts") {
            Some(Self::Caddy)
        } else {
            None
        }
    }

    /// Whether the line is about a request. Other lines are in the same log, and say other things.
    fn is_request(self, line: &Value) -> bool {
        let is = |name: &str, text: &str| line.get(name).and_then(Value::as_str) == Some(text);
        match self {
            // An error is logged in addition to the line of its request.
            Self::Caddy => {
                let logger = line.get("logger").and_then(Value::as_str).unwrap_or_default();
                line.get("request").is_some() && !logger.starts_with("http.log.error")
            }
            Self::Traefik => line.get("RequestMethod").is_some(),
            Self::Access => is("target", "slidegate::access"),
            Self::Audit => is("event", "decision"),
            Self::Other => true,
        }
    }

    fn usual(self) -> &'static [(&'static str, &'static [&'static str])] {
        match self {
            Self::Caddy => &[
                ("time", &["ts"]),
                ("client", &["request.client_ip", "request.remote_ip", "request.remote_addr"]),
                ("method", &["request.method"]),
                ("path", &["request.uri"]),
                ("user", &["user_id"]),
                ("status", &["status"]),
            ],
            Self::Traefik => &[
                ("time", &["StartUTC", "time"]),
                ("client", &["ClientHost", "ClientAddr"]),
                ("method", &["RequestMethod"]),
                ("path", &["RequestPath"]),
                ("user", &["ClientUsername"]),
                ("status", &["DownstreamStatus"]),
            ],
            Self::Access => &[
                ("time", &["timestamp"]),
                ("client", &["client"]),
                ("method", &["method"]),
                ("path", &["path"]),
                ("status", &["status"]),
            ],
            Self::Audit => &[
                ("time", &["time"]),
                ("client", &["client"]),
                ("method", &["method"]),
                ("path", &["path"]),
                ("status", &["status"]),
            ],
            Self::Other => &[],
        }
    }

    /// Where a header of the request is, if the log has headers.
    fn header(self, name: &HeaderName) -> Option<String> {
        let title = |word: &str| {
            let (first, rest) = word.split_at(word.len().min(1));
            first.to_ascii_uppercase() + rest
        };
        let name: Vec<String> = name.as_str().split('-').map(title).collect();
        match self {
            Self::Caddy => Some(format!("request.headers.{}", name.join("-"))),
            Self::Traefik => Some(format!("request_{}", name.join("-"))),
            Self::Access | Self::Audit | Self::Other => None,
        }
    }
}

impl JsonFields {
    pub(crate) fn new(shape: JsonShape, request: &FormatRequest<'_>) -> Result<Self, String> {
        let mappings = request.mappings;
        let mut fields: Vec<(FieldUse, Vec<FieldPath>)> = Vec::new();
        for mapping in mappings {
            let path = FieldPath::new(&mapping.field);
            match fields.iter_mut().find(|(to, _)| *to == mapping.to) {
                Some((_, paths)) => paths.push(path),
                None => fields.push((mapping.to.clone(), vec![path])),
            }
        }
        let is_mapped = |to: &FieldUse| mappings.iter().any(|mapping| mapping.to == *to);
        for (to, paths) in shape.usual() {
            let to: FieldUse = to.parse().expect("one of the uses");
            if !is_mapped(&to) {
                fields.push((to, paths.iter().map(|path| FieldPath::new(path)).collect()));
            }
        }
        for name in &request.wanted.0 {
            let to = FieldUse::Header(name.clone());
            if let Some(path) = shape.header(name).filter(|_| !is_mapped(&to)) {
                fields.push((to, vec![FieldPath::new(&path)]));
            }
        }
        let has = |wanted: FieldUse| fields.iter().any(|(to, _)| *to == wanted);
        if !has(FieldUse::Time) || !has(FieldUse::Path) && !has(FieldUse::Request) {
            let example =
                "--map time=ts --map method=method --map path=uri --map client=remote_addr";
            return Err(format!("JSON of this kind needs its fields named, such as {example}"));
        }
        Ok(Self { shape, fields, policies: Arc::clone(request.policies) })
    }

    pub(crate) fn read(
        &self,
        line: &[u8],
        entry: &mut LogEntry,
        times: &mut TimeReader,
    ) -> Result<LineKind, BadLine> {
        let line: Value = serde_json::from_slice(line).map_err(|_| "expected JSON")?;
        if !line.is_object() {
            return Err("expected a JSON object".into());
        }
        if !self.shape.is_request(&line) {
            return Ok(LineKind::Other);
        }
        let mut has_time = false;
        for (to, paths) in &self.fields {
            let is_redacted = |text: &str| to.may_be_secret() && text == "REDACTED";
            let texts = paths.iter().filter_map(|path| text(path.find(&line)?));
            let mut texts = texts.filter(|text| !text.is_empty() && text != "-");
            if let Some(text) = texts.find(|text| !is_redacted(text)) {
                entry.set(to, &text, times)?;
                has_time |= *to == FieldUse::Time;
            }
        }
        if self.shape == JsonShape::Audit {
            self.read_identities(&line, entry);
        }
        if has_time { Ok(LineKind::Request) } else { Err(NO_TIME.into()) }
    }

    /// Takes identities and the plan from the audit trail, which has no headers.
    fn read_identities(&self, line: &Value, entry: &mut LogEntry) {
        let policies = line.get("policies").and_then(Value::as_array);
        for policy in policies.into_iter().flatten() {
            let text = |name: &str| policy.get(name).and_then(Value::as_str);
            if let Some(identity) = text("identity").and_then(|text| self.identity(text))
                && !entry.identities.contains(&identity)
            {
                entry.identities.push(identity);
            }
            if let (None, Some(plan)) = (&entry.request.plan, text("plan")) {
                entry.request.plan = Some(plan.to_owned());
            }
        }
    }

    fn identity(&self, text: &str) -> Option<Identity> {
        let name = text.strip_prefix("api-key:").filter(|value| !Identity::is_digest(value));
        name.and_then(|name| self.policies.key_named(name)).or_else(|| text.parse().ok())
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
