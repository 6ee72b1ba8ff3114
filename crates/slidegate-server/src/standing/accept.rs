//! Whether a client would rather have a page than JSON.

use http::{HeaderMap, header};

/// Whether `Accept` gives HTML a higher weight than JSON (RFC 9110, section 12.5.1). What accepts both
/// alike, as `*/*` does, is a program.
pub(super) fn prefers_html(headers: &HeaderMap) -> bool {
    let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let ranges: Vec<(&str, f32)> =
        values.flat_map(|value| value.split(',')).filter_map(range).collect();
    weight(&ranges, "text", "text/html") > weight(&ranges, "application", "application/json")
}

/// A range of media types and its weight.
fn range(text: &str) -> Option<(&str, f32)> {
    let (range, parameters) = text.split_once(';').unwrap_or((text, ""));
    let weight = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    let weight = weight.map_or(Some(1.0), |value| value.parse().ok());
    weight.filter(|weight| (0.0..=1.0).contains(weight)).map(|weight| (range.trim(), weight))
}

/// The weight of the narrowest range that a media type is in.
fn weight(ranges: &[(&str, f32)], kind: &str, media_type: &str) -> f32 {
    let all_of_kind = format!("{kind}/*");
    let narrowest = [media_type, &all_of_kind, "*/*"]
        .into_iter()
        .find_map(|wanted| ranges.iter().find(|(range, _)| range.eq_ignore_ascii_case(wanted)));
    narrowest.map_or(0.0, |(_, weight)| *weight)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_a_page_and_programs_json() {
        for (accept, expected) in [
            ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", true),
            ("TEXT/HTML", true),
            ("text/*;q=0.5, application/json;q=0.4", true),
            ("application/json;q=0.1, text/html;q=0.2", true),
            ("", false),
            ("*/*", false),
            ("application/json", false),
            ("application/json, text/html;q=0.9", false),
            ("text/html, application/json", false),
            ("text/html;q=0", false),
            ("text/html;q=7, */*", false),
            ("text/html;q=banana", false),
            (",;,q=1;=,", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(prefers_html(&headers), expected, "{accept}");
        }
        assert!(!prefers_html(&HeaderMap::new()));
    }
}
