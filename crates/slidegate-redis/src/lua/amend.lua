-- Takes back or adds what is not decided anew. Returns whether it was done now, or before.
--
-- KEYS     the ledgers, and a mark that it has been done, for it may be asked again
-- ARGV[1]  for each ledger, or once if they are the same for all: units, window in ms, cost, flags
-- ARGV[2]  a name for this call that no other call has
-- ARGV[3]  'refund-newest', 'refund-at', 'settle' or 'merge'
-- ARGV[4]  to refund at or to settle: when they were spent, in us; to merge: runs, oldest first: how long
--          ago in us, and units
-- ARGV[5]  how long to keep the mark, in ms
-- ARGV[6]  to settle: what each charge turned out to cost
local what, mark, last = ARGV[3], KEYS[#KEYS], #KEYS - 1
if call('GETRANGE', mark, '0', '0') ~= '' then
    return 0
end

-- All are opened before the first is changed: a key that is no ledger fails the call as a whole.
for i = 1, last do
    read_terms(i)
    open(i)
end

-- The runs that are still in the ledger's window. Of what was recorded beyond the units, only the newest
-- matter.
local function live_runs(i)
    local newest, left, at = {}, units[i], #ARGV[4] - 9
    while at > 0 and left > 0 do
        local ago_us, amount = unpack('<I6I4', ARGV[4], at)
        local stamp = stamp_of(i, ceil((now_us - ago_us) / 1000))
        if stamp + window[i] > now_ms then
            newest[#newest + 1] = { stamp, min(amount, left) }
            left = left - amount
        end
        at = at - 10
    end
    local runs = {}
    for n = #newest, 1, -1 do
        runs[#runs + 1] = newest[n]
    end
    return runs
end

-- Takes back units that were spent at a time. What is a window old is free already, and what has its stamp
-- may be another's.
local function refund_at(i, amount)
    local at_us = tonumber(ARGV[4])
    if at_us + window[i] * 1000 > now_us then
        refund(i, amount, stamp_of(i, ceil(at_us / 1000)))
    end
end

for i = 1, last do
    if what == 'merge' then
        merge(i, live_runs(i))
    elseif what == 'refund-newest' then
        refund(i, cost[i])
    elseif what == 'refund-at' then
        refund_at(i, cost[i])
    else
        local more = tonumber(ARGV[6]) - cost[i]
        if more > 0 then
            record(i, min(more, units[i]))
        elseif more < 0 then
            refund_at(i, -more)
        end
    end
end
call('SET', mark, '1', 'PX', ARGV[5])
return 1
