//! What several tests need.

#![allow(dead_code, reason = "each test uses its part")]

use slidegate_testbed::{RedisCluster, RedisSentinels};

/// One URL for a whole cluster.
pub fn cluster_url(cluster: &RedisCluster) -> String {
    format!("redis-cluster://{}", hosts(&cluster.urls()))
}

/// One URL for whichever server the sentinels name.
pub fn sentinel_url(sentinels: &RedisSentinels) -> String {
    format!("redis-sentinel://{}/{}", hosts(&sentinels.urls()), sentinels.master_name())
}

fn hosts(urls: &[String]) -> String {
    let host = |url: &String| url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
    urls.iter().map(host).collect::<Vec<_>>().join(",")
}
