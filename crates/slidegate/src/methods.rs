//! Which words are methods, and which are probably slips.

use http::Method;

/// The methods that IANA lists, and those that caches and device protocols commonly add,
/// in order.
pub(crate) const KNOWN: [&str; 46] = [
    "ACL",
    "BAN",
    "BASELINE-CONTROL",
    "BIND",
    "CHECKIN",
    "CHECKOUT",
    "CONNECT",
    "COPY",
    "DELETE",
    "GET",
    "HEAD",
    "LABEL",
    "LINK",
    "LOCK",
    "M-SEARCH",
    "MERGE",
    "MKACTIVITY",
    "MKCALENDAR",
    "MKCOL",
    "MKREDIRECTREF",
    "MKWORKSPACE",
    "MOVE",
    "NOTIFY",
    "OPTIONS",
    "ORDERPATCH",
    "PATCH",
    "POST",
    "PRI",
    "PROPFIND",
    "PROPPATCH",
    "PURGE",
    "PUT",
    "QUERY",
    "REBIND",
    "REPORT",
    "SEARCH",
    "SUBSCRIBE",
    "TRACE",
    "UNBIND",
    "UNCHECKOUT",
    "UNLINK",
    "UNLOCK",
    "UNSUBSCRIBE",
    "UPDATE",
    "UPDATEREDIRECTREF",
    "VERSION-CONTROL",
];

/// Whether a method, in this case, is one of [`KNOWN`].
pub(crate) fn is_known(text: &str) -> bool {
    KNOWN.binary_search(&text).is_ok()
}

/// What is wrong with a policy that is for this method only, if clients probably never send it.
///
/// Methods are case-sensitive, and a word that is one slip away from a known method would match no
/// request, so the policy would limit nothing. Any other word is taken for an extension method.
pub(crate) fn problem(method: &Method) -> Option<String> {
    let text = method.as_str();
    if is_known(text) {
        return None;
    }
    let capitals = text.to_ascii_uppercase();
    let slips = |known: &&&str| strsim::osa_distance(&capitals, known) <= 1;
    if let Some(meant) = KNOWN.iter().find(slips) {
        return Some(format!("no client sends this method: did you mean {meant:?}?"));
    }
    (capitals != text).then(|| {
        format!("methods are case-sensitive and written in capitals: did you mean {capitals:?}?")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_extension_methods_are_good() {
        for text in KNOWN.iter().chain(&["LIST", "REFRESH", "X-RUN"]) {
            assert_eq!(problem(&text.parse().unwrap()), None, "{text}");
        }
        assert!(KNOWN.is_sorted());
    }

    #[test]
    fn slips_are_named_with_what_was_meant() {
        for (text, meant) in [
            ("GTE", "GET"),
            ("POTS", "POST"),
            ("post", "POST"),
            ("Delte", "DELETE"),
            ("PUTT", "PUT"),
            ("PROPFND", "PROPFIND"),
            ("refresh", "REFRESH"),
        ] {
            let problem = problem(&text.parse().unwrap()).unwrap();
            assert!(problem.ends_with(&format!("did you mean {meant:?}?")), "{text}: {problem}");
        }
    }
}
