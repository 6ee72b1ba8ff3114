//! `[headers]`, `[refusal]` and the refusals of policies.

use slidegate_tower::{Headers, Refusal, Responder, Shape, TemplateError};

use crate::config::policy::PolicyConfig;
use crate::config::reader::{Table, Value};

/// How the limiter's responses look.
pub(super) fn responder(root: &Table<'_>, policies: &[PolicyConfig<'_>]) -> Responder {
    let table = root.table("headers");
    // An empty list is not the default.
    let dialects = table.get("dialects").map(|value| value.each(Value::parsed));
    let mut headers = dialects.map_or_else(Headers::default, Headers::new);
    if table.read("on_redirects", Value::boolean) == Some(false) {
        headers = headers.not_on_redirects();
    }
    let mut responder = Responder::new().headers(headers);
    if let Some((refusal, _)) = root.read("refusal", refusal) {
        responder = responder.refusal(refusal);
    }
    for policy in policies {
        if let Some((refusal, _)) = &policy.refusal {
            responder = responder.refusal_for(policy.name.as_str(), refusal.clone());
        }
    }
    responder
}

/// A shape's name, or a table with a shape or a template; with a word for it.
pub(super) fn refusal(value: &Value<'_>) -> Option<(Refusal, String)> {
    if value.is_text() {
        return shape(value);
    }
    let table = value.table()?;
    let (named, text) = (table.get("shape"), table.get("template"));
    let content_type = table.get("content_type");
    match (named, text) {
        (Some(named), None) => {
            if let Some(content_type) = content_type {
                content_type.report("a shape has its own: expected it with a template only");
            }
            shape(&named)
        }
        (None, Some(text)) => template(content_type.as_ref(), &text),
        (Some(named), Some(_)) => {
            named.report("a template is given too: expected a shape or a template, not both");
            None
        }
        (None, None) => {
            table.missing("shape", "shape = \"problem\" or a template");
            None
        }
    }
}

fn shape(value: &Value<'_>) -> Option<(Refusal, String)> {
    let shape: Shape = value.parsed()?;
    Some((shape.into(), shape.to_string()))
}

fn template(content_type: Option<&Value<'_>>, text: &Value<'_>) -> Option<(Refusal, String)> {
    let kind = content_type.map_or(Some("text/plain; charset=utf-8"), Value::text)?;
    match Refusal::template(kind, text.text()?) {
        Ok(refusal) => Some((refusal, "template".to_owned())),
        Err(error) => {
            let is_kind = matches!(error, TemplateError::ContentType(_));
            content_type.filter(|_| is_kind).unwrap_or(text).report(error);
            None
        }
    }
}
