-- What both layouts share: the ledgers of a call as flat arrays, by the number of their key. A layout
-- has these functions; i is the number of a key, whose terms have been read:
--
--   open(i)                   reads the ledger and forgets what has left its window
--   spend(i, cost)            adds units now
--   forget(i, amount)         drops the oldest units; a spend follows
--   unit(i, number)           the stamp of a unit, counted from 1 for the oldest
--   runs_of(i)                pairs of a stamp and units, oldest first: all that there is
--   refund(i, amount, stamp)  takes back the newest units, or those with this stamp
--   merge(i, runs)            adds units spent elsewhere: pairs of a stamp and units, oldest first
local ceil, floor, max, min, rep, text = math.ceil, math.floor, math.max, math.min, string.rep, string.format

-- Ledgers of up to this many units are kept to the millisecond, others to a part of the window.
local FINE_UNITS = 4096
-- How long a key outlives its window.
local SLACK_MS = 1000
-- The terms of a ledger: units, window in ms, cost, flags.
local TERMS, TERMS_LEN = '<I4I6I4B', 15
-- The flags of a charge: a denied request is counted; it denies nothing; it is the charge before under
-- another quota; it is written down whether it fits or not. And of a request: nothing is spent; it is
-- denied already and only to be counted.
local COUNT_DENIED, SHADOW, SAME_CHARGE, RECORD, PEEK, DENY = 1, 2, 4, 8, 16, 32

local units, window, cost, flags = {}, {}, {}, {}
-- As found, and kept up to date: units in use, the stamp of the oldest in ms, and the tick in ms.
local used, oldest, tick = {}, {}, {}

-- Reads the terms of a ledger. There are terms for each key, or one for all.
local alike = #ARGV[1] == TERMS_LEN
local units_1, window_1, cost_1, flags_1 = unpack(TERMS, ARGV[1])
local function read_terms(i)
    if alike then
        units[i], window[i], cost[i], flags[i] = units_1, window_1, cost_1, flags_1
    else
        units[i], window[i], cost[i], flags[i] = unpack(TERMS, ARGV[1], (i - 1) * TERMS_LEN + 1)
    end
end

-- The stamp of a spend at this time: the first tick at or after it.
local function stamp_of(i, ms)
    return ceil(ms / tick[i]) * tick[i]
end
