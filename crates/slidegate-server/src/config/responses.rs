//! `[headers]`, `[refusal]` and the refusals of policies.

use slidegate_tower::{Headers, Refusal, Responder, Shape, TemplateError};

use crate::config::policy::PolicyConfig;
use crate::config::reader::Value;

/// How the limiter's responses look.
pub(super) fn responder(root: &Value<'_>, policies: &[PolicyConfig<'_>]) -> Responder {
    let table = root.section("headers");
    let dialects = table.key("dialects");
    let mut headers = match dialects.is_set() {
        // An empty list is not the default.
        true => Headers::new(dialects.each(Value::parsed)),
        false => Headers::default(),
    };
    if table.key("on_redirects").boolean() == Some(false) {
        headers = headers.not_on_redirects();
    }
    let mut responder = Responder::new().headers(headers);
    if let Some((refusal, _)) = refusal(&root.key("refusal")) {
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
    let [named, text, content_type] =
        ["shape", "template", "content_type"].map(|key| table.key(key));
    if text.is_set() {
        if named.is_set() {
            named.report("a template is given too: expected a shape or a template, not both");
        }
        return template(&content_type, &text);
    }
    if named.is_set() && content_type.is_set() {
        content_type.report("a shape has its own: expected it with a template only");
    }
    shape(&named.required("shape = \"problem\" or a template"))
}

fn shape(value: &Value<'_>) -> Option<(Refusal, String)> {
    let shape: Shape = value.parsed()?;
    Some((shape.into(), shape.to_string()))
}

fn template(content_type: &Value<'_>, text: &Value<'_>) -> Option<(Refusal, String)> {
    let kind = content_type.text().unwrap_or("text/plain; charset=utf-8");
    match Refusal::template(kind, text.text()?) {
        Ok(refusal) => Some((refusal, "template".to_owned())),
        Err(error) => {
            let is_kind = matches!(error, TemplateError::ContentType(_));
            if is_kind { content_type } else { text }.report(error);
            None
        }
    }
}
