//! Errors of the store.

use redis::RedisError;
use slidegate::StoreError;

/// Why Redis did not count a request.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum RedisStoreError {
    /// There is no connection, so nothing was sent.
    #[error("no connection to Redis: {0}")]
    Unreachable(#[source] RedisError),
    /// Redis returned an error, or the connection failed.
    #[error("{}", hinted(.0))]
    Redis(#[from] RedisError),
    /// Two ledgers of one request would have the same key.
    #[error(
        "the key template {template:?} gives two ledgers of one request the key {key:?}: add <policy> or <window> to it"
    )]
    SameKey {
        /// The key.
        key: String,
        /// The template.
        template: String,
    },
    /// The user has no permission for keys other than ledgers'.
    #[error("{error}: grant the Redis user the keys ~{pattern}")]
    KeyDenied {
        /// The pattern of the keys, as in an ACL.
        pattern: String,
        /// The error of Redis.
        #[source]
        error: RedisError,
    },
    /// The reply is not in the format of the script.
    #[error("Redis gave an unexpected reply to a script")]
    Reply,
    /// The circuit breaker is open.
    #[error("the Redis circuit breaker is open")]
    CircuitOpen,
    /// The limit of calls in flight was reached.
    #[error("too many calls to Redis are in flight")]
    QueueFull,
}

/// Why Redis cannot count in a key. Affects only the requests that need the key; Redis itself is
/// healthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum KeyErrorReason {
    /// The key has a value of another type, such as a ledger in the other layout.
    WrongType,
    /// The Redis user has no permission for the key or for the command.
    NoPermission,
    /// The scores are times in another unit than the store's [`ScoreUnit`](crate::ScoreUnit).
    ScoreUnit,
    /// The value has the right type but is not a ledger.
    Unreadable,
    /// Two ledgers of one request have the key.
    SharedKey,
    /// The server keeps the keys of one request in different slots.
    OtherSlot,
    /// The reply of the script is malformed.
    Reply,
}

/// The permission that a Redis user lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MissingPermission {
    Key,
    /// A command, if Redis names it.
    Command(Option<String>),
}

impl KeyErrorReason {
    /// The reason in one or two words, for labels and logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WrongType => "wrong-type",
            Self::NoPermission => "no-permission",
            Self::ScoreUnit => "score-unit",
            Self::Unreadable => "unreadable",
            Self::SharedKey => "shared-key",
            Self::OtherSlot => "other-slot",
            Self::Reply => "reply",
        }
    }
}

impl RedisStoreError {
    /// The reason if the error is about a key of this request. Redis itself is healthy then.
    pub fn key_error(&self) -> Option<KeyErrorReason> {
        match self {
            Self::Unreachable(_) | Self::CircuitOpen | Self::QueueFull => None,
            Self::Redis(error) => key_error(error),
            Self::SameKey { .. } => Some(KeyErrorReason::SharedKey),
            Self::KeyDenied { .. } => Some(KeyErrorReason::NoPermission),
            Self::Reply => Some(KeyErrorReason::Reply),
        }
    }

    /// Whether the server does not know a script, as after a restart.
    pub(crate) fn is_unknown_script(&self) -> bool {
        matches!(self, Self::Redis(error) if error.code() == Some("NOSCRIPT"))
    }

    /// The missing permission, if that is the cause.
    pub(crate) fn missing_permission(&self) -> Option<MissingPermission> {
        match self {
            Self::Redis(error) if key_error(error) == Some(KeyErrorReason::NoPermission) => {
                Some(missing_permission(&error.to_string()))
            }
            Self::KeyDenied { .. } => Some(MissingPermission::Key),
            _ => None,
        }
    }

    /// The error code of the server.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Redis(error) => error.code(),
            _ => None,
        }
    }

    /// Names the keys, which are not ledgers', if the user has no permission for them.
    pub(crate) fn at_keys(self, pattern: String) -> Self {
        match (self.missing_permission(), self) {
            (Some(MissingPermission::Key), Self::Redis(error)) => {
                Self::KeyDenied { pattern, error }
            }
            (_, other) => other,
        }
    }

    /// The cause of a store's error if it is about a key.
    pub(crate) fn about_a_key(error: &StoreError) -> Option<(&Self, KeyErrorReason)> {
        let StoreError::Unavailable(cause) = error else { return None };
        let failure: &Self = cause.downcast_ref()?;
        Some((failure, failure.key_error()?))
    }
}

fn key_error(error: &RedisError) -> Option<KeyErrorReason> {
    match error.code()? {
        "WRONGTYPE" => Some(KeyErrorReason::WrongType),
        "NOPERM" => Some(KeyErrorReason::NoPermission),
        "CROSSSLOT" => Some(KeyErrorReason::OtherSlot),
        "SCOREUNIT" => Some(KeyErrorReason::ScoreUnit),
        "ERR" => script_error(&error.to_string()),
        _ => None,
    }
}

/// What is wrong with a key by what a script says that failed. Before Redis 7 the code of a command's
/// error is in the text. An error that the script has caught does not name the script.
fn script_error(text: &str) -> Option<KeyErrorReason> {
    let says = |word: &str| text.contains(word);
    let of_the_server = ["OOM ", "MISCONF ", "READONLY ", "NOREPLICAS ", "SCRIPT KILL"];
    if says("SCOREUNIT") {
        Some(KeyErrorReason::ScoreUnit)
    } else if says("The user executing the script can't ") {
        Some(KeyErrorReason::NoPermission)
    } else if !says("user_script") || of_the_server.into_iter().any(says) {
        None
    } else if says("WRONGTYPE ") {
        Some(KeyErrorReason::WrongType)
    } else if says("NOPERM ") {
        Some(KeyErrorReason::NoPermission)
    } else {
        Some(KeyErrorReason::Unreadable)
    }
}

/// What permission is missing by what Redis says, of which only the sentence about commands is the
/// same in all versions.
fn missing_permission(text: &str) -> MissingPermission {
    if let Some((_, rest)) = text.split_once("no permissions to run the '") {
        return MissingPermission::Command(
            rest.split_once('\'').map(|(command, _)| command.to_owned()),
        );
    }
    match text.contains("can't run this command") {
        true => MissingPermission::Command(None),
        false => MissingPermission::Key,
    }
}

/// An error of Redis, with a remedy where it is not obvious.
fn hinted(error: &RedisError) -> String {
    let hint = match (key_error(error), error.code()) {
        (Some(KeyErrorReason::WrongType), _) => {
            " (the key has another type, perhaps a ledger in the other layout: use another key template, or wait until such keys have expired)"
        }
        (Some(KeyErrorReason::ScoreUnit), _) => {
            " (another limiter counts on the key: set score_unit to the unit of its scores)"
        }
        (Some(KeyErrorReason::Unreadable), _) => {
            " (the value may belong to another program: use another key template)"
        }
        (Some(KeyErrorReason::NoPermission), _) => {
            " (docs/redis.md lists the permissions that the user needs)"
        }
        (_, Some("OOM")) => " (give Redis more memory, or use a dedicated instance)",
        (_, Some("READONLY")) => " (this is a replica: connect to the primary)",
        _ => "",
    };
    format!("{error}{hint}")
}

impl From<RedisStoreError> for StoreError {
    fn from(failure: RedisStoreError) -> Self {
        Self::Unavailable(Box::new(failure))
    }
}

#[cfg(test)]
mod tests {
    use redis::Value;

    use super::*;

    #[test]
    fn errors_of_a_key_are_distinguished_from_errors_of_the_server() {
        use KeyErrorReason::{NoPermission, OtherSlot, ScoreUnit, Unreadable, WrongType};
        for (reply, expected) in [
            ("WRONGTYPE Operation against a key script: 5f, on @user_script:9.", Some(WrongType)),
            (
                "ERR Error running script (call to f_5f): @user_script:9: WRONGTYPE Operation",
                Some(WrongType),
            ),
            ("NOPERM this user has no permissions to access one of the keys", Some(NoPermission)),
            (
                "ERR The user executing the script can't run this command or subcommand script: 5f, on @user_script:9.",
                Some(NoPermission),
            ),
            (
                "ERR The user executing the script can't run this command or subcommand",
                Some(NoPermission),
            ),
            ("CROSSSLOT Keys in request don't hash to the same slot", Some(OtherSlot)),
            ("ERR SCOREUNIT the score 1 is a time in another unit script: 5f", Some(ScoreUnit)),
            (
                "ERR user_script:9: data string too short script: 5f, on @user_script:9.",
                Some(Unreadable),
            ),
            (
                "ERR Error running script (call to f_5f): @user_script:9: -OOM command not allowed",
                None,
            ),
            (
                "ERR Error running script: @user_script:9: Script killed by user with SCRIPT KILL...",
                None,
            ),
            ("OOM command not allowed when used memory > 'maxmemory'.", None),
            ("ERR unknown command", None),
            ("LOADING Redis is loading the dataset in memory", None),
        ] {
            assert_eq!(failure(reply).key_error(), expected, "{reply}");
        }
    }

    fn failure(reply: &str) -> RedisStoreError {
        let parsed = redis::parse_redis_value(format!("-{reply}\r\n").as_bytes());
        parsed.and_then(Value::extract_error).unwrap_err().into()
    }

    #[test]
    fn a_denied_command_is_distinguished_from_a_denied_key() {
        let command = |name: &str| Some(MissingPermission::Command(Some(name.to_owned())));
        for (reply, expected) in [
            (
                "NOPERM this user has no permissions to run the 'evalsha' command or its subcommand",
                command("evalsha"),
            ),
            (
                "NOPERM this user has no permissions to run the 'script|load' command",
                command("script|load"),
            ),
            ("NOPERM User monkey has no permissions to run the 'set' command", command("set")),
            (
                "NOPERM ACL failure in script: User monkey has no permissions to run the 'set' command script: 5f, on @user_script:9.",
                command("set"),
            ),
            (
                "ERR The user executing the script can't run this command or subcommand script: 5f, on @user_script:9.",
                Some(MissingPermission::Command(None)),
            ),
            (
                "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments script: 5f, on @user_script:9.",
                Some(MissingPermission::Key),
            ),
            (
                "NOPERM this user has no permissions to access one of the keys used as arguments",
                Some(MissingPermission::Key),
            ),
            ("NOPERM No permissions to access a key", Some(MissingPermission::Key)),
            ("WRONGTYPE Operation against a key", None),
        ] {
            assert_eq!(failure(reply).missing_permission(), expected, "{reply}");
        }
    }
}
