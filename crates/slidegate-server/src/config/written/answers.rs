//! `[headers]`, `[refusal]` and the refusals of policies.

use slidegate_tower::{Dialect, Refusal, Shape};

use crate::config::reader::{Table, Value};

/// `[headers]`.
#[derive(Debug, Clone, Default)]
pub(in crate::config) struct WrittenHeaders {
    /// None is the default, which is not the same as an empty list.
    pub(in crate::config) dialects: Option<Vec<Dialect>>,
    pub(in crate::config) on_redirects: Option<bool>,
}

/// How a refused request is answered.
#[derive(Debug, Clone)]
pub(in crate::config) struct WrittenRefusal {
    pub(in crate::config) refusal: Refusal,
    /// In a word.
    pub(in crate::config) shown: String,
}

impl WrittenHeaders {
    pub(super) fn read(table: &Table<'_>) -> Self {
        let dialects = |value: Value<'_>| {
            value.each(Value::parsed).into_iter().map(|sourced| sourced.value).collect()
        };
        Self {
            dialects: table.get("dialects").map(dialects),
            on_redirects: table.get("on_redirects").and_then(|value| value.boolean()),
        }
    }
}

impl WrittenRefusal {
    /// A shape's name, or a table with a shape or a template.
    pub(super) fn read(value: &Value<'_>) -> Option<Self> {
        if value.is_text() { shape(value) } else { value.table(table)? }
    }
}

fn shape(value: &Value<'_>) -> Option<WrittenRefusal> {
    let shape: Shape = value.parsed()?;
    Some(WrittenRefusal { refusal: shape.into(), shown: shape.to_string() })
}

fn table(table: &Table<'_>) -> Option<WrittenRefusal> {
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

fn template(content_type: Option<&Value<'_>>, text: &Value<'_>) -> Option<WrittenRefusal> {
    let kind = match content_type {
        Some(value) => value.text()?,
        None => "text/plain; charset=utf-8",
    };
    let refusal = Refusal::template(kind, text.text()?);
    let refusal = refusal.map_err(|error| match (&error, content_type) {
        (slidegate_tower::TemplateError::ContentType(_), Some(value)) => value.report(error),
        _ => text.report(error),
    });
    Some(WrittenRefusal { refusal: refusal.ok()?, shown: "template".to_owned() })
}
