//! The store that the configuration asks for.

use std::fs;
use std::path::Path;

use anyhow::Context;
use slidegate::MemoryStore;
use slidegate_redis::{LeasedStore, RedisTls, ResilientStore};

use crate::config::RedisConfig;

/// A store in this process.
pub(crate) fn memory(capacity: Option<usize>) -> MemoryStore {
    let builder = MemoryStore::builder();
    match capacity {
        Some(accounts) => builder.capacity(accounts),
        None => builder,
    }
    .build()
}

/// A store on Redis, which decides by itself while Redis cannot, and from leases where policies let it.
pub(crate) fn redis(config: &RedisConfig) -> anyhow::Result<LeasedStore> {
    let mut builder = config.builder();
    if let Some(tls) = tls(config)? {
        builder = builder.tls(tls);
    }
    let builder = ResilientStore::builder(builder.build()?);
    let builder = match config.share {
        Some(share) => builder.share(share),
        None => builder,
    };
    Ok(LeasedStore::new(builder.build()))
}

fn tls(config: &RedisConfig) -> anyhow::Result<Option<RedisTls>> {
    if config.ca.is_none() && config.client.is_none() {
        return Ok(None);
    }
    let mut tls = RedisTls::new();
    if let Some(ca) = &config.ca {
        tls = tls.authority(read(ca)?);
    }
    if let Some(client) = &config.client {
        tls = tls.client(read(&client.certificate)?, read(&client.key)?);
    }
    Ok(Some(tls))
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}
