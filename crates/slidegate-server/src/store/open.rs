//! Opening the store of a configuration, and the thread that talks to Redis.

use std::io;
use std::path::Path;

use anyhow::Context;
use slidegate::MemoryStore;
use slidegate_redis::{LeasedStore, RedisTls, ResilientStore};
use tokio::runtime::{Builder, Handle, Runtime};

use crate::config::{RedisConfig, StoreConfig};
use crate::file;
use crate::store::AnyStore;

/// An open store.
pub(crate) struct OpenStore {
    pub(crate) store: AnyStore,
    /// Lives as long as the store is used.
    _redis: Option<RedisThread>,
}

impl OpenStore {
    /// Opens the store of a configuration. It connects when it is first used.
    pub(crate) fn new(config: &StoreConfig) -> anyhow::Result<Self> {
        match config {
            StoreConfig::Memory { capacity, .. } => {
                Ok(Self { store: memory(*capacity).into(), _redis: None })
            }
            StoreConfig::Redis(config) => {
                let thread = RedisThread::start().context("cannot begin")?;
                let store = redis(config, Some(thread.handle())).context("store")?.into();
                Ok(Self { store, _redis: Some(thread) })
            }
        }
    }
}

/// Finds out whether a store could be made of this; connects to nothing.
pub(crate) fn check_redis(config: &RedisConfig) -> anyhow::Result<()> {
    redis(config, None).map(drop)
}

/// A store in this process.
pub(crate) fn memory(capacity: usize) -> MemoryStore {
    MemoryStore::builder().capacity(capacity).build()
}

/// The thread that talks to Redis, and on which nothing else runs: whatever keeps another thread busy,
/// such as a reload, replies are read in time. Ends without waiting for calls in flight.
#[derive(Debug)]
struct RedisThread(Option<Runtime>);

impl RedisThread {
    fn start() -> io::Result<Self> {
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(1).thread_name("slidegate-redis").enable_all();
        Ok(Self(Some(builder.build()?)))
    }

    /// Where the tasks of a store are to run.
    fn handle(&self) -> &Handle {
        self.0.as_ref().expect("it is taken only when this is dropped").handle()
    }
}

impl Drop for RedisThread {
    fn drop(&mut self) {
        self.0.take().into_iter().for_each(Runtime::shutdown_background);
    }
}

/// A store on Redis, which decides by itself while Redis cannot, and from leases where policies let it.
fn redis(config: &RedisConfig, runtime: Option<&Handle>) -> anyhow::Result<LeasedStore> {
    let mut builder = config.builder();
    if let Some(runtime) = runtime {
        builder = builder.runtime(runtime.clone());
    }
    if let Some(tls) = tls(config)? {
        builder = builder.tls(tls);
    }
    let builder = ResilientStore::builder(builder.build()?).capacity(config.capacity);
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
    let read = file::read_pem(path).with_context(|| format!("cannot read {}", path.display()));
    Ok(read?.bytes)
}
