-- The one clock: read once, because it moves on while a script runs.
local call, pack, unpack, spread = redis.call, struct.pack, struct.unpack, unpack
local time = call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now_ms = (now_us - now_us % 1000) / 1000
local now_ceil_ms = now_us > now_ms * 1000 and now_ms + 1 or now_ms

-- Ledgers of up to this many units are kept to the millisecond, others to a part of the window.
local FINE_UNITS = 4096

-- What is said of a ledger: units, window, cost, flags.
local ARGS, ARGS_LEN = '<I4I6I4B', 15

-- The flags of a charge: that a denied request is counted, that it denies nothing, that it is the
-- one before under another quota; and of a request: that nothing is to be spent, or that it is denied
-- already and is only to be counted.
local COUNT_DENIED, SHADOW, SAME_CHARGE, PEEK, DENY = 1, 2, 4, 8, 16
