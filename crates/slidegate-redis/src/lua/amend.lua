-- Takes back or adds what is not decided anew.
--
-- KEYS     the ledgers, and a mark that it has been done, for it may be asked again
-- ARGV[1]  for each ledger, or once if they are the same for all: units, window in ms, cost, flags
-- ARGV[2]  'refund-newest', 'refund-at' or 'merge'
-- ARGV[3]  to refund at: when they were spent, in us; to merge: runs, oldest first: how long ago in us,
--          and units
-- ARGV[4]  how long to keep the mark, in ms
local what, mark, last = ARGV[2], KEYS[#KEYS], #KEYS - 1
if call('GETRANGE', mark, '0', '0') ~= '' then
    return 0
end

-- All are opened before the first is changed: a key that is no ledger fails the call as a whole.
for i = 1, last do
    read_terms(i)
    open(i)
end

-- The runs that are still in the ledger's window.
local function live_runs(i)
    local runs = {}
    for at = 1, #ARGV[3], 10 do
        local ago_us, amount = unpack('<I6I4', ARGV[3], at)
        local stamp = stamp_of(i, ceil((now_us - ago_us) / 1000))
        if stamp + window[i] > now_ms then
            runs[#runs + 1] = { stamp, amount }
        end
    end
    return runs
end

for i = 1, last do
    if what == 'merge' then
        merge(i, live_runs(i))
    elseif what == 'refund-newest' then
        refund(i, cost[i])
    else
        -- What is a window old is free already, and what has its stamp may be another's.
        local at_us = tonumber(ARGV[3])
        if at_us + window[i] * 1000 > now_us then
            refund(i, cost[i], stamp_of(i, ceil(at_us / 1000)))
        end
    end
end
call('SET', mark, '1', 'PX', ARGV[4])
return 1
