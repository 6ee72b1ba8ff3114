local function has(flags, flag)
    return flags % (2 * flag) >= flag
end

-- What the layout can do, made when it is first needed.
local this

-- Decides the request whose ledgers are those from one key to another.
local function decide(from, to)
    this = this or layout()
    local ledgers, fitting, allowed, peek = {}, {}, true, false
    local charge = 0
    for i = from, to do
        local at = #ARGV[1] > ARGS_LEN and (i - 1) * ARGS_LEN + 1 or 1
        local units, window, cost, flags = unpack(ARGS, ARGV[1], at)
        local ledger = this.open(KEYS[i], units, window)
        if not has(flags, SAME_CHARGE) then
            charge = charge + 1
            fitting[charge] = true
        end
        peek, allowed = has(flags, PEEK), allowed and not has(flags, DENY)
        ledger.cost, ledger.flags, ledger.charge = cost, flags, charge
        ledgers[#ledgers + 1] = ledger
        ledger.had_room = ledger.used + cost <= units
        if not ledger.had_room then
            fitting[charge] = false
            allowed = allowed and has(flags, SHADOW)
        end
    end

    local reply = { string.char(allowed and 1 or 0) }
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
        reply[i + 1] = pack('<I4I6I6B', math.max(0, ledger.units - ledger.used), retry_us, reset_us,
            ledger.had_room and 1 or 0)
    end
    return table.concat(reply)
end
