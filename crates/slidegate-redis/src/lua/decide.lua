-- Spends every charge or none, or tells whether it would.
--
-- KEYS     the ledgers, those of one charge together
-- ARGV[1]  for each key: units, window in ms, cost, flags
-- ARGV[2]  a name for this call that no other call has, if the layout needs one
--
-- Returns whether all was spent and the time in us; then for each key: units left, and how long
-- until the charge fits and until the first unit is free again, in us.
local function has(flags, flag)
    return flags % (2 * flag) >= flag
end

local this = layout()
local ledgers, fitting, allowed, peek = {}, {}, true, false
local charge = 0
for i, key in ipairs(KEYS) do
    local units, window, cost, flags = unpack('<I4I6I4B', ARGV[1], i * 15 - 14)
    local ledger = this.open(key, units, window)
    if not has(flags, SAME_CHARGE) then
        charge = charge + 1
        fitting[charge] = true
    end
    peek, allowed = has(flags, PEEK), allowed and not has(flags, DENY)
    ledger.cost, ledger.flags, ledger.charge = cost, flags, charge
    ledgers[i] = ledger
    if ledger.used + cost > units then
        fitting[charge] = false
        allowed = allowed and has(flags, SHADOW)
    end
end

local reply = { pack('<BI7', allowed and 1 or 0, now_us) }
for i, ledger in ipairs(ledgers) do
    local cost, spent = ledger.cost, false
    if not peek then
        if allowed and fitting[ledger.charge] then
            this.spend(ledger, cost)
            spent = true
        elseif has(ledger.flags, COUNT_DENIED) then
            -- It takes the place of as many of the oldest units as there is no room for.
            local left = math.max(0, ledger.units - ledger.used)
            if cost > left then
                this.forget(ledger, math.min(cost - left, ledger.used))
            end
            this.spend(ledger, cost)
        end
    end
    local must_leave, retry_us, reset_us = ledger.used + cost - ledger.units, 0, 0
    if not spent and must_leave > 0 then
        retry_us = (this.unit(ledger, must_leave) + ledger.window) * 1000 - now_us
    end
    if ledger.used > 0 then
        reset_us = (ledger.oldest + ledger.window) * 1000 - now_us
    end
    reply[i + 1] = pack('<I4I6I6', math.max(0, ledger.units - ledger.used), retry_us, reset_us)
end
return table.concat(reply)
