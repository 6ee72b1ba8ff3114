//! Lines of text, read by a template as nginx's `log_format` has it.

use std::borrow::Cow;

use http::HeaderName;

use crate::entry::{BadLine, FieldMapping, FieldUse, LogEntry, NO_TIME};
use crate::format::WantedHeaders;
use crate::time::TimeReader;

/// How the fields of a line follow one another.
#[derive(Debug)]
pub(crate) struct LineTemplate {
    /// What is before the first field.
    start: Vec<u8>,
    /// Up to the last field that says something; what follows is not looked at.
    fields: Vec<TemplateField>,
    /// Whether one of all fields is for secrets, or may have one.
    pub(crate) may_have_secrets: bool,
}

/// Headers that proxies log as they come and that have no secrets.
const HARMLESS: [&str; 5] =
    ["http_referer", "http_user_agent", "http_host", "http_x_forwarded_for", "http_x_real_ip"];

/// A field, and what is between it and the next.
#[derive(Debug)]
struct TemplateField {
    name: String,
    field: Option<FieldUse>,
    /// Empty after the last field.
    end: Vec<u8>,
}

pub(crate) const COMMON: &str =
    r#"$remote_addr $remote_ident $remote_user [$time_local] "$request" $status $body_bytes_sent"#;
pub(crate) const COMBINED: &str = r#"$remote_addr $remote_ident $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent""#;
/// Envoy's own format, in nginx's words; `$envoy_forwarded_for` ends with the address of the peer.
pub(crate) const ENVOY: &str = r#"[$time_iso8601] "$request" $status $response_flags $bytes_received $bytes_sent $duration $upstream_service_time "$envoy_forwarded_for" "$http_user_agent" "$request_id" "$http_host" "$upstream_host""#;
/// The load balancer's time of a request is that of its beginning, and not of its end.
pub(crate) const ALB: &str = r#"$type $end_time $elb $remote_addr $target $request_processing_time $target_processing_time $response_processing_time $status $target_status $received_bytes $sent_bytes "$request" "$http_user_agent" $ssl_cipher $ssl_protocol $target_group_arn "$trace_id" "$domain_name" "$chosen_cert_arn" $matched_rule_priority $time_iso8601 "$actions_executed""#;

impl TemplateField {
    /// Whether it is a header, a cookie or a parameter, which may be a secret.
    fn is_of_client(&self) -> bool {
        let kinds =
            ["http_", "sent_http_", "upstream_http_", "cookie_", "arg_", "args", "query_string"];
        let is_kind = kinds.iter().any(|kind| self.name.starts_with(kind));
        is_kind && !HARMLESS.contains(&&*self.name)
    }
}

impl LineTemplate {
    /// Reads a template. The error says what is wrong with it.
    pub(crate) fn parse(
        text: &str,
        mappings: &[FieldMapping],
        wanted: &WantedHeaders,
    ) -> Result<Self, String> {
        let (start, mut rest) = text.split_at(text.find('$').unwrap_or(text.len()));
        let mut fields = Vec::new();
        while let Some(variable) = rest.strip_prefix('$') {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let (name, after) = match variable.strip_prefix('{') {
                Some(braced) => braced.split_once('}').ok_or("expected a } after ${")?,
                None => variable.split_at(variable.find(|c| !is_name(c)).unwrap_or(variable.len())),
            };
            let (end, next) = after.split_at(after.find('$').unwrap_or(after.len()));
            if name.is_empty() {
                return Err("expected the name of a variable after $".to_owned());
            }
            if end.is_empty() && !next.is_empty() {
                return Err(format!("expected some text between ${name} and the next variable"));
            }
            fields.push(TemplateField { name: name.to_owned(), field: None, end: end.into() });
            rest = next;
        }
        let mut template = Self { start: start.into(), fields, may_have_secrets: false };
        template.assign(mappings, wanted)?;
        Ok(template)
    }

    /// Says what each variable is for.
    fn assign(&mut self, mappings: &[FieldMapping], wanted: &WantedHeaders) -> Result<(), String> {
        let is_mapped = |usual: &FieldUse| mappings.iter().any(|mapping| mapping.to == *usual);
        for variable in &mut self.fields {
            let mapped = mappings.iter().find(|mapping| mapping.field == variable.name);
            let usual = usual_use(&variable.name, wanted).filter(|usual| !is_mapped(usual));
            variable.field = mapped.map(|mapping| mapping.to.clone()).or(usual);
        }
        for FieldMapping { to, field } in mappings {
            if !self.fields.iter().any(|variable| variable.name == *field) {
                return Err(format!("--map {to}={field}: there is no variable ${field}"));
            }
        }
        let uses: Vec<_> = self.fields.iter().filter_map(|own| own.field.as_ref()).collect();
        let has = |field| uses.contains(&field);
        if !has(&FieldUse::Time) {
            return Err("expected a time: $time_local, $time_iso8601 or $msec".to_owned());
        }
        if !has(&FieldUse::Request) && !has(&FieldUse::Path) {
            return Err("expected $request, or $request_method and $request_uri".to_owned());
        }
        self.may_have_secrets = uses.iter().any(|field| field.may_be_secret())
            || self.fields.iter().any(TemplateField::is_of_client);
        let last = self.fields.iter().rposition(|variable| variable.field.is_some());
        self.fields.truncate(last.map_or(0, |last| last + 1));
        Ok(())
    }

    pub(crate) fn read(
        &self,
        line: &[u8],
        entry: &mut LogEntry,
        times: &mut TimeReader,
    ) -> Result<(), BadLine> {
        let short =
            || BadLine(format!("expected {} fields, as the format has", self.fields.len()).into());
        let mut rest = line.strip_prefix(&self.start[..]).ok_or_else(short)?;
        let mut has_time = false;
        for TemplateField { field, end, .. } in &self.fields {
            let length = find_end(rest, end).ok_or_else(short)?;
            if let Some(field) = field {
                entry.set(field, &unescaped(&rest[..length]), times)?;
                has_time |= *field == FieldUse::Time;
            }
            rest = &rest[length + end.len()..];
        }
        if !has_time {
            return Err(NO_TIME.into());
        }
        Ok(())
    }
}

/// Where a field ends. In quotes, a quote with a backslash before it is part of the field.
fn find_end(text: &[u8], end: &[u8]) -> Option<usize> {
    match end {
        [] => Some(text.len()),
        [b'"', ..] => {
            let mut quotes = memchr::memchr_iter(b'"', text);
            quotes.find(|at| !is_escaped(&text[..*at]) && text[*at..].starts_with(end))
        }
        [only] => memchr::memchr(*only, text),
        [first, ..] => memchr::memchr_iter(*first, text).find(|at| text[*at..].starts_with(end)),
    }
}

fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1
}

/// What a variable of nginx is for, if it is for anything.
fn usual_use(name: &str, wanted: &WantedHeaders) -> Option<FieldUse> {
    Some(match name {
        "remote_addr" => FieldUse::Client,
        "remote_user" => FieldUse::User,
        "time_local" | "time_iso8601" | "msec" => FieldUse::Time,
        "request" => FieldUse::Request,
        "status" => FieldUse::Status,
        "request_method" => FieldUse::Method,
        "request_uri" | "uri" => FieldUse::Path,
        "envoy_forwarded_for" => FieldUse::ForwardedFor,
        _ => {
            let header = name.strip_prefix("http_")?.replace('_', "-");
            let header: HeaderName = header.parse().ok()?;
            FieldUse::Header(wanted.0.contains(&header).then_some(header)?)
        }
    })
}

/// A value as it was before nginx or Apache wrote it: `\x22` is `"`, and so is `\"`. What is no UTF-8
/// is replaced.
fn unescaped(text: &[u8]) -> Cow<'_, str> {
    if memchr::memchr(b'\\', text).is_none() {
        // Nearly every value is good, which this finds sooner.
        return str::from_utf8(text).map_or_else(|_| String::from_utf8_lossy(text), Cow::Borrowed);
    }
    let (mut bytes, mut rest) = (Vec::with_capacity(text.len()), text);
    while let [first, after @ ..] = rest {
        let hex = |digits: &[u8]| u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok();
        let (byte, length) = match (first, after) {
            (b'\\', [b'x', high, low, ..]) => match hex(&[*high, *low]) {
                Some(byte) => (byte, 4),
                None => (b'\\', 1),
            },
            (b'\\', [b't', ..]) => (b'\t', 2),
            (b'\\', [b'n', ..]) => (b'\n', 2),
            (b'\\', [b'r', ..]) => (b'\r', 2),
            (b'\\', [escaped @ (b'"' | b'\\'), ..]) => (*escaped, 2),
            (byte, _) => (*byte, 1),
        };
        bytes.push(byte);
        rest = &rest[length..];
    }
    Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_what_they_were_before_they_were_logged() {
        for (logged, value) in [
            (r"/\x22quoted\x22\xC3\xBC", "/\"quoted\"\u{fc}"),
            (r#"/\"a\\b"#, "/\"a\\b"),
            (r"/\x2", r"/\x2"),
            (r"\", r"\"),
            ("plain", "plain"),
        ] {
            assert_eq!(unescaped(logged.as_bytes()), value);
        }
        assert_eq!(unescaped(b"\xff"), "\u{fffd}");
    }

    #[test]
    fn a_quote_in_quotes_is_found_to_be_one() {
        assert_eq!(find_end(br#"a\"b" x"#, b"\" "), Some(4));
        assert_eq!(find_end(br#"a\\" x"#, b"\" "), Some(3));
        assert_eq!(find_end(b"a", b"\""), None);
    }
}
