//! Which words are methods, and which are probably slips.

use http::Method;

/// The methods that IANA lists, and common extensions of caches, device protocols, WebDAV servers
/// and frameworks, in order.
pub(crate) const KNOWN: &str = "\
    ACL BAN BASELINE-CONTROL BATCH BCOPY BDELETE BIND BMOVE BPROPFIND BPROPPATCH CHECKIN \
    CHECKOUT CONNECT COPY DELETE GET HEAD LABEL LINK LOCK M-SEARCH MERGE MKACTIVITY MKCALENDAR \
    MKCOL MKREDIRECTREF MKWORKSPACE MOVE NOTIFY OPTIONS ORDERPATCH PATCH POST PRI PROPFIND \
    PROPPATCH PURGE PUT QUERY READ REBIND REPORT SEARCH SUBSCRIBE TRACE TRACK UNBIND \
    UNCHECKOUT UNLINK UNLOCK UNSUBSCRIBE UPDATE UPDATEREDIRECTREF VERSION-CONTROL";

/// The methods of nearly all requests. Only a word close to one of these is taken for a slip: other
/// known methods are so many that words in use lie next to them, such as FIND to BIND.
const COMMON: [&str; 7] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];

/// The words of [`KNOWN`].
pub(crate) fn known<'a>() -> impl Iterator<Item = &'a str> {
    KNOWN.split_ascii_whitespace()
}

/// Whether a method, in this case, is one of [`KNOWN`].
pub(crate) fn is_known(text: &str) -> bool {
    COMMON.contains(&text) || known().any(|known| known == text)
}

/// Refuses a method that a policy names if another was probably meant: the policy would match no
/// request and limit nothing. Methods are case-sensitive. A word in capitals that is not
/// close to a common method is taken for an extension method.
pub(crate) fn check(method: Method) -> Result<Method, String> {
    let text = method.as_str();
    if is_known(text) {
        return Ok(method);
    }
    let capitals = text.to_ascii_uppercase();
    let is_slip = |common: &&&str| strsim::osa_distance(&capitals, common) == 1;
    if !is_known(&capitals)
        && let Some(meant) = COMMON.iter().find(is_slip)
    {
        return Err(format!("one letter away from {meant}: did you mean {meant:?}?"));
    }
    if capitals == text {
        return Ok(method);
    }
    Err(format!("methods are case-sensitive and written in capitals: did you mean {capitals:?}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_extension_methods_are_good() {
        let real = ["TRACK", "BCOPY", "BMOVE", "BDELETE", "BPROPFIND", "BPROPPATCH"];
        let extensions = ["FIND", "READ", "BATCH", "LIST", "REFRESH", "X-RUN", "LOCKS"];
        for text in known().chain(real).chain(extensions) {
            assert!(check(text.parse().unwrap()).is_ok(), "{text}");
        }
        assert!(known().is_sorted());
    }

    #[test]
    fn slips_are_named_with_what_was_meant() {
        for (text, meant) in [
            ("GTE", "GET"),
            ("POTS", "POST"),
            ("Delte", "DELETE"),
            ("PUTT", "PUT"),
            ("OPTION", "OPTIONS"),
        ] {
            let problem = check(text.parse().unwrap()).unwrap_err();
            let expected = format!("one letter away from {meant}: did you mean {meant:?}?");
            assert_eq!(problem, expected, "{text}");
        }
        for (text, meant) in
            [("post", "POST"), ("propfind", "PROPFIND"), ("Batch", "BATCH"), ("refresh", "REFRESH")]
        {
            let problem = check(text.parse().unwrap()).unwrap_err();
            let expected = format!("written in capitals: did you mean {meant:?}?");
            assert!(problem.ends_with(&expected), "{text}: {problem}");
        }
    }
}
