//! Secrets where others may see them.

use crate::config::environment;
use crate::config::location::{Location, Origin};
use crate::config::warning::ConfigWarning;
use crate::config::written::{Written, WrittenRoster};

pub(super) fn lint(written: &Written, is_open_to_all: bool, warnings: &mut Vec<ConfigWarning>) {
    keys_file(written, warnings);
    let before = warnings.len();
    tokens(written, warnings);
    password(written, warnings);
    api_keys(written, warnings);
    let lists = [&written.exempt, &written.blocked].into_iter();
    let own = written.policies.iter().map(|policy| &policy.exempt);
    lists.chain(own).for_each(|list| roster(list, warnings));
    let in_file = warnings[before..].iter().find(|warning| warning.location().is_in_file());
    if let Some(first) = in_file.filter(|_| is_open_to_all) {
        let Origin::File { name, .. } = &first.location().origin else { return };
        let origin = Origin::File { name: name.clone(), line: None };
        let text = "every user of this machine may read the file, and it has secrets: chmod o-r";
        warnings.push(ConfigWarning::new(&Location { origin, key: String::new() }, text));
    }
}

fn keys_file(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    if let Some(file) = written.keys_file.as_ref().filter(|file| file.shows_secrets) {
        let text = "every user of this machine may read the API keys in it: chmod o-r, or give \
                    their digests, which `slidegate digest` makes";
        warnings.push(ConfigWarning::new(&file.location, text));
    }
}

fn tokens(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    let decisions = written.decisions.as_ref().map(|sourced| &sourced.value);
    for (endpoint, variable) in [
        (written.admin.as_ref(), environment::ADMIN_TOKEN),
        (decisions, environment::DECISIONS_TOKEN),
    ] {
        let token = endpoint
            .filter(|endpoint| endpoint.is_in_file)
            .and_then(|endpoint| endpoint.token.as_ref());
        if let Some(token) = token {
            let text = format!("a secret in the file: name a token_file, or set {variable}");
            warnings.push(ConfigWarning::new(&token.location, text));
        }
    }
}

fn password(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    let url = written.store.url.as_ref().filter(|url| has_password(url.reveal()));
    let Some(url) = url else { return };
    let text = match url.location.origin {
        Origin::File { .. } => "a password in the file: set REDIS_URL in its origin",
        Origin::Flag(_) => "other users of this machine see the password: set REDIS_URL instead",
        _ => return,
    };
    warnings.push(ConfigWarning::new(&url.location, text));
}

fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let login = rest.rsplit_once('@').map(|(login, _)| login);
    let queried = ["pass=", "password="].iter().any(|key| rest.contains(key));
    queried || login.is_some_and(|login| login.contains(':'))
}

fn api_keys(written: &Written, warnings: &mut Vec<ConfigWarning>) {
    let mut in_file = written.api_keys.iter().filter(|key| key.is_in_file);
    if let Some(first) = in_file.next() {
        let remedy = "give its digest, which `slidegate digest` makes, or name a key_file";
        let text = match in_file.count() {
            0 => format!("a secret in the file: {remedy}"),
            more => format!("a secret in the file, and {more} more API keys: {remedy}"),
        };
        warnings.push(ConfigWarning::new(&first.location, text));
    }
}

fn roster(roster: &WrittenRoster, warnings: &mut Vec<ConfigWarning>) {
    for location in &roster.secrets {
        warnings
            .push(ConfigWarning::new(location, "secrets in the file: keep it from others' eyes"));
    }
}
