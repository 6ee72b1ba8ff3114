//! Secrets where others may see them.

use crate::config::environment;
use crate::config::spot::{Place, Spot};
use crate::config::warning::Warning;
use crate::config::written::{Written, WrittenRoster};

pub(super) fn lint(written: &Written, is_open_to_all: bool, warnings: &mut Vec<Warning>) {
    keys_file(written, warnings);
    let before = warnings.len();
    tokens(written, warnings);
    password(written, warnings);
    api_keys(written, warnings);
    let lists = [&written.exempt, &written.blocked].into_iter();
    let own = written.policies.iter().map(|policy| &policy.exempt);
    lists.chain(own).for_each(|list| roster(list, warnings));
    let in_file = warnings[before..].iter().find(|warning| warning.spot().is_in_file());
    if let Some(first) = in_file.filter(|_| is_open_to_all) {
        let Place::File { name, .. } = &first.spot().place else { return };
        let place = Place::File { name: name.clone(), line: None };
        let text = "every user of this machine may read the file, and it has secrets: chmod o-r";
        warnings.push(Warning::new(&Spot { place, key: String::new() }, text));
    }
}

fn keys_file(written: &Written, warnings: &mut Vec<Warning>) {
    if let Some(file) = written.keys_file.as_ref().filter(|file| file.shows_secrets) {
        let text = "every user of this machine may read the API keys in it: chmod o-r, or give \
                    their digests, which `slidegate digest` makes";
        warnings.push(Warning::new(&file.spot, text));
    }
}

fn tokens(written: &Written, warnings: &mut Vec<Warning>) {
    let decisions = written.decisions.as_ref().map(|said| &said.value);
    for (door, variable) in [
        (written.admin.as_ref(), environment::ADMIN_TOKEN),
        (decisions, environment::DECISIONS_TOKEN),
    ] {
        let token = door.filter(|door| door.is_in_file).and_then(|door| door.token.as_ref());
        if let Some(token) = token {
            let text = format!("a secret in the file: name a token_file, or set {variable}");
            warnings.push(Warning::new(&token.spot, text));
        }
    }
}

fn password(written: &Written, warnings: &mut Vec<Warning>) {
    let url = written.store.url.as_ref().filter(|url| has_password(url.reveal()));
    let Some(url) = url else { return };
    let text = match url.spot.place {
        Place::File { .. } => "a password in the file: set REDIS_URL in its place",
        Place::Flag(_) => "other users of this machine see the password: set REDIS_URL instead",
        _ => return,
    };
    warnings.push(Warning::new(&url.spot, text));
}

fn has_password(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let login = rest.rsplit_once('@').map(|(login, _)| login);
    let queried = ["pass=", "password="].iter().any(|key| rest.contains(key));
    queried || login.is_some_and(|login| login.contains(':'))
}

fn api_keys(written: &Written, warnings: &mut Vec<Warning>) {
    let mut in_file = written.api_keys.iter().filter(|key| key.is_in_file);
    if let Some(first) = in_file.next() {
        let remedy = "give its digest, which `slidegate digest` makes, or name a key_file";
        let text = match in_file.count() {
            0 => format!("a secret in the file: {remedy}"),
            more => format!("a secret in the file, and {more} more API keys: {remedy}"),
        };
        warnings.push(Warning::new(&first.spot, text));
    }
}

fn roster(roster: &WrittenRoster, warnings: &mut Vec<Warning>) {
    for spot in &roster.secrets {
        warnings.push(Warning::new(spot, "secrets in the file: keep it from others' eyes"));
    }
}
