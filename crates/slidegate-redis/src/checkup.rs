//! Checks a server for settings that lose data.

use redis::Value;

/// A problem of a server that endangers its budgets, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ServerWarning {
    /// The server evicts keys when its memory is full, and with them spends.
    #[error(
        "Redis evicts keys when its memory is full (maxmemory-policy {0}), and an identity whose \
         key is evicted gets a full quota; set maxmemory-policy noeviction, preferably on a dedicated \
         instance"
    )]
    Evicts(String),
    /// The server is a replica and cannot count.
    #[error(
        "this Redis is a replica, which lags behind and cannot count; connect to its primary, or by \
         redis-sentinel:// or redis-cluster://"
    )]
    Replica,
    /// The server is too old.
    #[error(
        "Redis {0} is too old: the scripts read the clock and then write, which needs 5.0 or later"
    )]
    TooOld(String),
}

/// The state of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerReport {
    /// Problems that endanger its budgets.
    pub warnings: Vec<ServerWarning>,
    /// Keys evicted since its start because its memory was full; the sum over all nodes of a
    /// cluster.
    pub evicted_keys: u64,
}

impl ServerReport {
    pub(crate) fn read(info: &Value) -> Self {
        Self { warnings: findings(info), evicted_keys: evicted_keys(info) }
    }
}

fn evicted_keys(info: &Value) -> u64 {
    let count = |text: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix("evicted_keys:"));
        line.and_then(|count| count.parse().ok()).unwrap_or(0)
    };
    match info {
        Value::BulkString(text) => count(&String::from_utf8_lossy(text)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => count(text),
        Value::Map(nodes) => nodes.iter().map(|(_, info)| evicted_keys(info)).sum(),
        _ => 0,
    }
}

/// The problems found in `INFO`; for a cluster, over all of its nodes.
pub(crate) fn findings(info: &Value) -> Vec<ServerWarning> {
    match info {
        Value::BulkString(text) => findings_in(&String::from_utf8_lossy(text)),
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => findings_in(text),
        Value::Map(nodes) => {
            let mut all: Vec<ServerWarning> =
                nodes.iter().flat_map(|(_, info)| findings(info)).collect();
            // A cluster has replicas, and no call is sent to them.
            all.retain(|finding| *finding != ServerWarning::Replica);
            all.dedup();
            all
        }
        _ => Vec::new(),
    }
}

fn findings_in(info: &str) -> Vec<ServerWarning> {
    let field = |name: &str| {
        info.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':'))
    };
    let mut found = Vec::new();
    if let Some(policy) = field("maxmemory_policy").filter(|policy| *policy != "noeviction") {
        found.push(ServerWarning::Evicts(policy.to_owned()));
    }
    if field("role") == Some("slave") {
        found.push(ServerWarning::Replica);
    }
    let major = |version: &str| version.split('.').next()?.parse::<u32>().ok();
    if let Some(version) = field("redis_version").filter(|v| major(v).is_some_and(|m| m < 5)) {
        found.push(ServerWarning::TooOld(version.to_owned()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_healthy_server_gives_no_reason_to_worry() {
        let info =
            "# Server\r\nredis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\n";
        assert_eq!(findings(&Value::BulkString(info.into())), []);
        assert_eq!(findings(&Value::Nil), []);
    }

    #[test]
    fn an_old_server_is_found_out() {
        let info = "redis_version:3.2.12\r\nrole:slave\r\nmaxmemory_policy:allkeys-lru\r\n";
        let found = findings(&Value::SimpleString(info.into()));
        let expected = [
            ServerWarning::Evicts("allkeys-lru".into()),
            ServerWarning::Replica,
            ServerWarning::TooOld("3.2.12".into()),
        ];
        assert_eq!(found, expected);
    }
}
