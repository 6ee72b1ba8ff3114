-- Takes back or adds what is not decided anew.
--
-- KEYS     the ledgers, and a mark that it has been done, for it may be asked again
-- ARGV[1]  'refund-newest', 'refund-at' or 'merge'
-- ARGV[2]  for each ledger: units, window in ms, how many units to take back
-- ARGV[3]  to refund at: when they were spent, in us; to merge: runs, oldest first: how long ago in
--          us, and units
-- ARGV[4]  how long to keep the mark, in ms
local this = layout()
local what, count = ARGV[1], #ARGV[2] / 14
local mark = KEYS[count + 1]
if call('GETRANGE', mark, '0', '0') ~= '' then
    return 0
end

-- All are opened before the first is changed: a key that is no ledger fails the call as a whole.
local ledgers = {}
for i = 1, count do
    local units, window, amount = unpack('<I4I6I4', ARGV[2], i * 14 - 13)
    ledgers[i] = this.open(KEYS[i], units, window)
    ledgers[i].amount = amount
end

-- What of the runs is still in the ledger's window.
local function live(ledger)
    local runs = {}
    for at = 1, #ARGV[3], 10 do
        local ago_us, spent = unpack('<I6I4', ARGV[3], at)
        local stamp = this.stamp_of(ledger, math.ceil((now_us - ago_us) / 1000))
        if stamp + ledger.window > now_ms then
            runs[#runs + 1] = { stamp, spent }
        end
    end
    return runs
end

for _, ledger in ipairs(ledgers) do
    if what == 'merge' then
        this.merge(ledger, live(ledger))
    elseif what == 'refund-newest' then
        this.refund(ledger, ledger.amount)
    else
        -- What is a window old is free already, and what has its stamp may be another's.
        local at_us = tonumber(ARGV[3])
        if at_us + ledger.window * 1000 > now_us then
            this.refund(ledger, ledger.amount, this.stamp_of(ledger, math.ceil(at_us / 1000)))
        end
    end
end
call('SET', mark, '1', 'PX', ARGV[4])
return 1
