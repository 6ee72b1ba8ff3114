//! What Redis gives to scripts besides the language: `struct`, and `redis.call` for the commands that
//! packed ledgers use.

use std::collections::HashMap;
use std::sync::Arc;

use mlua::{Error, Lua, LuaString, MultiValue, Result, Value, Variadic};
use parking_lot::Mutex;
use slidegate::Clock;

/// The keys of a server, which expire.
#[derive(Default)]
pub(crate) struct ServerKeys(HashMap<Vec<u8>, Entry>);

struct Entry {
    bytes: Vec<u8>,
    expires_ms: u64,
}

impl ServerKeys {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn remove(&mut self, key: &[u8]) -> bool {
        self.0.remove(key).is_some()
    }

    fn get(&mut self, key: &[u8], now_ms: u64) -> Option<&mut Entry> {
        if self.0.get(key)?.expires_ms < now_ms {
            self.0.remove(key);
        }
        self.0.get_mut(key)
    }

    /// Runs one of the commands that the scripts call.
    fn run(&mut self, command: &[u8], args: &[Vec<u8>], now_us: u64, lua: &Lua) -> Result<Value> {
        let now_ms = now_us / 1000;
        let number = |i: usize| number(args, i);
        let key = args.first().map_or(&[][..], Vec::as_slice);
        match (command, args.len()) {
            (b"TIME", 0) => {
                let parts = [now_us / 1_000_000, now_us % 1_000_000].map(|part| part.to_string());
                Ok(Value::Table(lua.create_sequence_from(parts)?))
            }
            (b"GETRANGE", 3) => {
                let bytes = self.get(key, now_ms).map_or(&[][..], |entry| &entry.bytes);
                let (from, to) = (number(1)? as usize, number(2)? as usize + 1);
                let part = bytes.get(from..to.min(bytes.len())).unwrap_or_default();
                Ok(Value::String(lua.create_string(part)?))
            }
            (b"SETRANGE", 3) => {
                let (from, part) = (number(1)? as usize, &args[2]);
                let expires_ms = self.get(key, now_ms).map_or(u64::MAX, |entry| entry.expires_ms);
                let entry =
                    self.0.entry(key.to_owned()).or_insert(Entry { bytes: Vec::new(), expires_ms });
                entry.bytes.resize(entry.bytes.len().max(from + part.len()), 0);
                entry.bytes[from..from + part.len()].copy_from_slice(part);
                Ok(Value::Number(entry.bytes.len() as f64))
            }
            (b"SET", 4) if args[2] == b"PX" => {
                let entry = Entry { bytes: args[1].clone(), expires_ms: now_ms + number(3)? };
                self.0.insert(key.to_owned(), entry);
                Ok(Value::Boolean(true))
            }
            (b"PEXPIRE", 2) => {
                let expires_ms = now_ms + number(1)?;
                let entry = self.get(key, now_ms);
                let is_there = entry.map(|entry| entry.expires_ms = expires_ms).is_some();
                Ok(Value::Number(u8::from(is_there).into()))
            }
            (b"DEL", 1) => Ok(Value::Number(u8::from(self.remove(key)).into())),
            _ => Err(Error::runtime(format!(
                "the simulated Redis has no {}: it has what packed ledgers need",
                String::from_utf8_lossy(command)
            ))),
        }
    }
}

fn number(args: &[Vec<u8>], i: usize) -> Result<u64> {
    let text = str::from_utf8(&args[i]).ok();
    text.and_then(|text| text.parse().ok())
        .ok_or_else(|| Error::runtime("ERR value is not an integer"))
}

/// Lua with what scripts find in Redis.
pub(crate) fn interpreter(keys: Arc<Mutex<ServerKeys>>, clock: Arc<dyn Clock>) -> Result<Lua> {
    let lua = Lua::new();
    let call = move |lua: &Lua, mut args: Variadic<Value>| {
        let args: Vec<Vec<u8>> = args.drain(..).map(|arg| bytes_of(&arg)).collect::<Result<_>>()?;
        let (command, args) = args.split_first().ok_or_else(|| Error::runtime("ERR no command"))?;
        keys.lock().run(command, args, clock.now().as_nanos() / 1000, lua)
    };
    let redis = lua.create_table()?;
    redis.set("call", lua.create_function(call)?)?;
    let packing = lua.create_table()?;
    packing.set("pack", lua.create_function(pack)?)?;
    packing.set("unpack", lua.create_function(unpack)?)?;
    lua.globals().set("redis", redis)?;
    lua.globals().set("struct", packing)?;
    Ok(lua)
}

/// An argument as Redis would send it: numbers without a fraction.
fn bytes_of(value: &Value) -> Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        Value::Number(number) => Ok((*number as i64).to_string().into_bytes()),
        _ => Err(Error::runtime("ERR Lua redis lib command arguments must be strings or integers")),
    }
}

/// The sizes in bytes of the little-endian integers in a format such as `<BI2I6`.
fn sizes(format: &[u8]) -> impl Iterator<Item = usize> {
    let letters = format.iter().enumerate().filter(|(_, byte)| byte.is_ascii_uppercase());
    letters.map(|(i, letter)| match letter {
        b'I' => usize::from(format[i + 1] - b'0'),
        _ => 1,
    })
}

fn pack(lua: &Lua, (format, numbers): (LuaString, Variadic<f64>)) -> Result<LuaString> {
    let mut bytes = Vec::with_capacity(64);
    for (size, number) in sizes(&format.as_bytes()).zip(numbers.iter()) {
        bytes.extend_from_slice(&(*number as u64).to_le_bytes()[..size]);
    }
    lua.create_string(bytes)
}

/// The integers from a position on, counted from 1, and the position after them.
fn unpack(
    _: &Lua,
    (format, bytes, at): (LuaString, LuaString, Option<usize>),
) -> Result<MultiValue> {
    let (bytes, mut at) = (bytes.as_bytes(), at.unwrap_or(1) - 1);
    let mut values = MultiValue::new();
    for size in sizes(&format.as_bytes()) {
        let part =
            bytes.get(at..at + size).ok_or_else(|| Error::runtime("data string too short"))?;
        let mut number = [0; 8];
        number[..size].copy_from_slice(part);
        values.push_back(Value::Number(u64::from_le_bytes(number) as f64));
        at += size;
    }
    values.push_back(Value::Number((at + 1) as f64));
    Ok(values)
}
