//! A server that speaks Redis' protocol and runs the scripts that it is sent.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Bytes, BytesMut};
use mlua::{Function, Lua};
use parking_lot::Mutex;
use redis_protocol::resp2::decode::decode_bytes;
use redis_protocol::resp2::encode::extend_encode;
use redis_protocol::resp2::types::BytesFrame;
use slidegate::Clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::lua::{self, ServerKeys};

/// A Redis whose clock is given. It runs the very scripts that a store loads, in the Lua of Redis, with
/// the commands that packed ledgers use. That it does what Redis does is shown by the suite that all
/// stores pass.
#[derive(Clone)]
pub struct SimulatedRedis(Arc<Server>);

struct Server {
    lua: Lua,
    keys: Arc<Mutex<ServerKeys>>,
    scripts: Mutex<HashMap<Bytes, Function>>,
    calls: AtomicU64,
}

impl SimulatedRedis {
    /// A server without keys, whose `TIME` is this clock's.
    pub fn new(clock: impl Clock) -> Self {
        let keys = Arc::<Mutex<ServerKeys>>::default();
        let lua = lua::interpreter(keys.clone(), Arc::new(clock)).expect("Lua has memory");
        Self(Arc::new(Server { lua, keys, scripts: Mutex::default(), calls: AtomicU64::new(0) }))
    }

    /// How many script calls there were.
    pub fn calls(&self) -> u64 {
        self.0.calls.load(Ordering::Relaxed)
    }

    /// Forgets all keys.
    pub fn flush(&self) {
        self.0.keys.lock().clear();
    }

    /// Serves a connection until it ends.
    pub async fn serve(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) -> io::Result<()> {
        let (mut read, mut replies) = (BytesMut::new(), BytesMut::new());
        while stream.read_buf(&mut read).await? > 0 {
            let mut bytes = read.split().freeze();
            while let Some((command, length)) = decode_bytes(&bytes).map_err(io::Error::other)? {
                let _ = bytes.split_to(length);
                let reply = self.0.run(&arguments(command));
                extend_encode(&mut replies, &reply, false).map_err(io::Error::other)?;
            }
            read.extend_from_slice(&bytes);
            stream.write_all(&replies.split()).await?;
        }
        Ok(())
    }
}

fn arguments(command: BytesFrame) -> Vec<Bytes> {
    let BytesFrame::Array(parts) = command else { return Vec::new() };
    let bytes = |part| match part {
        BytesFrame::BulkString(bytes) => bytes,
        _ => Bytes::new(),
    };
    parts.into_iter().map(bytes).collect()
}

impl Server {
    fn run(&self, args: &[Bytes]) -> BytesFrame {
        let ok = || BytesFrame::SimpleString(Bytes::from_static(b"OK"));
        let words: Vec<&[u8]> = args.iter().map(|arg| &arg[..]).collect();
        match words.as_slice() {
            [b"EVALSHA", ..] => self.evaluate(args),
            [b"SCRIPT", b"LOAD", text] => match self.lua.load(*text).into_function() {
                Ok(script) => {
                    let hash = Bytes::from(
                        redis::Script::new(&String::from_utf8_lossy(text)).get_hash().to_owned(),
                    );
                    self.scripts.lock().insert(hash.clone(), script);
                    BytesFrame::BulkString(hash)
                }
                Err(error) => failure(&error.to_string()),
            },
            [b"DEL", keys @ ..] => {
                let mut there = self.keys.lock();
                BytesFrame::Integer(keys.iter().filter(|key| there.remove(key)).count() as i64)
            }
            [b"INFO", ..] => BytesFrame::BulkString(Bytes::new()),
            [b"CLIENT" | b"PING" | b"SELECT", ..] => ok(),
            [other, ..] => failure(&format!("unknown command {}", String::from_utf8_lossy(other))),
            [] => failure("no command"),
        }
    }

    fn evaluate(&self, args: &[Bytes]) -> BytesFrame {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let [_, hash, count, rest @ ..] = args else { return failure("too few arguments") };
        let count = str::from_utf8(count).ok().and_then(|count| count.parse().ok());
        let Some((keys, args)) = count.and_then(|count| rest.split_at_checked(count)) else {
            return failure("wrong number of keys");
        };
        let Some(script) = self.scripts.lock().get(hash).cloned() else {
            return BytesFrame::Error("NOSCRIPT No matching script.".into());
        };
        match self.call(&script, keys, args) {
            Ok(mlua::Value::String(text)) => {
                BytesFrame::BulkString(Bytes::copy_from_slice(&text.as_bytes()))
            }
            Ok(mlua::Value::Integer(number)) => BytesFrame::Integer(number),
            Ok(mlua::Value::Number(number)) => BytesFrame::Integer(number as i64),
            Ok(_) => BytesFrame::Null,
            Err(error) => failure(&error.to_string()),
        }
    }

    fn call(&self, script: &Function, keys: &[Bytes], args: &[Bytes]) -> mlua::Result<mlua::Value> {
        for (name, values) in [("KEYS", keys), ("ARGV", args)] {
            let table = self.lua.create_table_with_capacity(values.len(), 0)?;
            for (i, value) in values.iter().enumerate() {
                table.raw_set(i + 1, self.lua.create_string(value)?)?;
            }
            self.lua.globals().raw_set(name, table)?;
        }
        script.call(())
    }
}

fn failure(text: &str) -> BytesFrame {
    BytesFrame::Error(format!("ERR {}", text.lines().next().unwrap_or_default()).into())
}
