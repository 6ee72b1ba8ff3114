-- The clock: read once, because it moves on while a script runs.
local call, pack, unpack, spread = redis.call, struct.pack, struct.unpack, unpack
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = (now_us - now_us % 1000) / 1000
local now_ceil_ms = now_us > now_ms * 1000 and now_ms + 1 or now_ms
