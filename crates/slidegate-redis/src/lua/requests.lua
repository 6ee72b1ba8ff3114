-- Decides requests, one after the other, at one time.
--
-- KEYS     the ledgers, those of one request together, and of it those of one charge
-- ARGV[1]  for each key, or once if they are the same for all: units, window in ms, cost, flags
-- ARGV[2]  if there are several requests: a byte for each, the number of its keys; or none, if each
--          has one
--
-- Returns the time in us; then for each request whether all was spent, and for each of its keys:
-- units left, how long until the charge fits and until the first unit is free again, in us, and
-- whether the charge fitted before anything was counted.
-- Of several requests, one that fails leaves the others alone; for it there is FAILED, and the error
-- with its length.
local FAILED = 2

local counts = ARGV[2]
local requests = not counts and 1 or counts == '' and #KEYS or #counts
-- The time, and what is said to each request.
local answers = { pack('<I8', now_us) }

-- The request that is to be decided next, and the keys of the one that is being decided.
local request, first_key, last_key = 1, 1, 0
