-- What can be done to a packed ledger. It is a function so that only who needs them makes all these.
local function layout()
    local ceil, max, min = math.ceil, math.max, math.min

    -- The kind that the units in force ask for, or those that are used.
    local function kind_for(ledger)
        local coarse = ledger.units > FINE_UNITS or ledger.used > FINE_UNITS
        return coarse and COARSE or FINE
    end

    local function tick_of(ledger)
        return ledger.kind == FINE and 1 or ceil(ledger.window / FINE_UNITS)
    end

    -- The stamp of a spend at this moment.
    local function stamp_of(ledger, ceil_ms)
        local tick = tick_of(ledger)
        return ceil(ceil_ms / tick) * tick
    end

    -- Where in the string the slot of an entry begins; entries are counted from 0 for the oldest.
    local function offset(ledger, index)
        return ring_at(ledger.slots) + (ledger.first + index) % ledger.slots * SLOT_LEN
    end

    -- How many entries there are, with those that have no slot yet.
    local function count(ledger)
        return ledger.entries + #ledger.pending / SLOT_LEN
    end

    -- The stamp and the units of an entry.
    local function entry(ledger, index)
        if index >= ledger.entries then
            return unpack('<I6', ledger.pending, (index - ledger.entries) * SLOT_LEN + 1), 1
        end
        local at = offset(ledger, index)
        local from = at - ledger.from
        if from < 0 or from + SLOT_LEN > #ledger.bytes then
            ledger.bytes, ledger.from, from = call('GETRANGE', ledger.key, at, at + 383), at, 0
        end
        if ledger.kind == FINE then
            return unpack('<I6', ledger.bytes, from + 1), 1
        end
        local tick, short, units = tick_of(ledger), unpack('<I2I4', ledger.bytes, from + 1)
        local newest = ledger.newest / tick
        return (newest - (newest - short) % 65536) * tick, units
    end

    -- The entries as pairs of a stamp and units, oldest first.
    local function runs_of(ledger)
        local runs = {}
        for index = 0, count(ledger) - 1 do
            runs[index + 1] = { entry(ledger, index) }
        end
        return runs
    end

    -- Drops the oldest entry.
    local function drop(ledger)
        if ledger.entries == 0 then
            ledger.pending = ledger.pending:sub(SLOT_LEN + 1)
        else
            ledger.first, ledger.entries = (ledger.first + 1) % ledger.slots, ledger.entries - 1
        end
    end

    local function forget_expired(ledger)
        if ledger.newest + ledger.window <= now_ms then
            ledger.first, ledger.entries, ledger.used, ledger.oldest = 0, 0, 0, 0
            ledger.pending = ''
            return
        end
        while ledger.oldest + ledger.window <= now_ms do
            local _, units = entry(ledger, 0)
            ledger.used = ledger.used - units
            drop(ledger)
            ledger.oldest = entry(ledger, 0)
        end
    end

    -- The header, and that nothing is known of the next entries.
    local function header(ledger)
        local header = pack(HEADER, ledger.kind, ledger.slots, ledger.expires, ledger.first,
            ledger.entries, ledger.used, ledger.oldest, ledger.newest)
        return ledger.slots > SMALL_RING and header .. '\0' .. ledger.pending or header
    end

    local function slots_for(ledger, entries)
        if entries <= ledger.slots then
            return ledger.slots
        end
        -- Rings grow twofold, but not beyond what the quota can fill.
        local most = ledger.kind == FINE and max(ledger.units, entries) or FINE_UNITS + 1
        return min(max(8, 2 * ledger.slots, entries), most)
    end

    -- Writes the ledger anew, of entries in order, all of which get a slot.
    local function write(ledger, ring, entries, used)
        ledger.pending = ''
        ledger.slots = slots_for(ledger, entries)
        ledger.first, ledger.entries, ledger.used = 0, entries, used
        ledger.expires = max(ledger.newest, now_ms) + ledger.window + SLACK_MS
        local free = string.rep('\0', (ledger.slots - entries) * SLOT_LEN)
        local before = header(ledger)
        before = before .. string.rep('\0', ring_at(ledger.slots) - #before)
        ledger.bytes, ledger.from = before .. ring .. free, 0
        call('SET', ledger.key, ledger.bytes, 'PX', ledger.expires - now_ms)
    end

    -- Writes the ledger anew, of these runs.
    local function rewrite(ledger, runs)
        if #runs == 0 then
            call('DEL', ledger.key)
            ledger.slots, ledger.first, ledger.entries, ledger.used, ledger.oldest = 0, 0, 0, 0, 0
            ledger.pending = ''
            return
        end
        local tick, parts, used = tick_of(ledger), {}, 0
        for i, run in ipairs(runs) do
            used = used + run[2]
            if ledger.kind == FINE then
                parts[i] = string.rep(pack('<I6', run[1]), run[2])
            else
                parts[i] = pack('<I2I4', run[1] / tick % 65536, run[2])
            end
        end
        ledger.oldest, ledger.newest = runs[1][1], runs[#runs][1]
        write(ledger, table.concat(parts), ledger.kind == FINE and used or #runs, used)
    end

    -- The slots that are taken, oldest first. They need not be understood to be put in order, which
    -- is what makes it quick.
    local function in_order(ledger)
        if ledger.entries == 0 then
            return ''
        end
        local bytes = call('GETRANGE', ledger.key, ring_at(ledger.slots), '-1')
        local start = ledger.first * SLOT_LEN
        return (bytes:sub(start + 1) .. bytes:sub(1, start)):sub(1, ledger.entries * SLOT_LEN)
    end

    -- Adds units at a stamp to runs, which are older.
    local function append(runs, stamp, units)
        local last = runs[#runs]
        if last and last[1] == stamp then
            last[2] = last[2] + units
        else
            runs[#runs + 1] = { stamp, units }
        end
    end

    -- Gives the ledger the kind that its units ask for, and pulls stamps from the future, where a
    -- clock that stepped back leaves them, to the present.
    local function settle(ledger, runs)
        ledger.kind = kind_for(ledger)
        local tick, present, settled = tick_of(ledger), stamp_of(ledger, now_ceil_ms), {}
        for _, run in ipairs(runs) do
            append(settled, min(ceil(run[1] / tick) * tick, present), run[2])
        end
        rewrite(ledger, settled)
    end

    local function is_settled(ledger)
        return ledger.kind == kind_for(ledger)
            and ledger.newest <= stamp_of(ledger, now_ceil_ms)
    end

    local this = { stamp_of = stamp_of }

    function this.open(key, units, window)
        local ledger = { key = key, units = units, window = window, from = 0 }
        ledger.bytes, ledger.pending = call('GETRANGE', key, '0', HEAD), ''
        if ledger.bytes == '' then
            ledger.slots, ledger.first, ledger.entries, ledger.used = 0, 0, 0, 0
            ledger.oldest, ledger.newest, ledger.expires = 0, 0, 0
            ledger.kind = kind_for(ledger)
            return ledger
        end
        ledger.kind, ledger.slots, ledger.expires, ledger.first, ledger.entries, ledger.used,
            ledger.oldest, ledger.newest = unpack(HEADER, ledger.bytes)
        if ledger.kind == FINE then
            local last = PENDING_AT + (ledger.used - ledger.entries) * SLOT_LEN - 1
            ledger.pending = ledger.bytes:sub(PENDING_AT, last)
        end
        forget_expired(ledger)
        if ledger.used > 0 and not is_settled(ledger) then
            settle(ledger, runs_of(ledger))
        elseif ledger.used == 0 then
            ledger.kind = kind_for(ledger)
        end
        return ledger
    end

    -- Writes slots in their place in the ring, the header, and when the key goes.
    local function write_in_place(ledger, index, slots)
        call('SETRANGE', ledger.key, offset(ledger, index), slots)
        if ledger.expires < ledger.newest + ledger.window then
            ledger.expires = ledger.newest + ledger.window + ceil(ledger.window / 4) + SLACK_MS
            call('PEXPIRE', ledger.key, ledger.expires - now_ms)
        end
        call('SETRANGE', ledger.key, '0', header(ledger))
        ledger.bytes = ''
    end

    function this.spend(ledger, cost)
        local stamp, index = stamp_of(ledger, now_ceil_ms), ledger.entries
        local more, spent
        if ledger.kind == FINE then
            -- What is pending gets its slots with it.
            spent = ledger.pending .. string.rep(pack('<I6', stamp), cost)
            more, ledger.pending = #spent / SLOT_LEN, ''
        else
            local units = cost
            more = 1
            if index > 0 and ledger.newest == stamp then
                index, more = index - 1, 0
                units = units + select(2, entry(ledger, index))
            end
            spent = pack('<I2I4', stamp / tick_of(ledger) % 65536, units)
        end
        if ledger.used == 0 then
            ledger.oldest = stamp
        end
        ledger.newest = stamp
        local entries, used = ledger.entries + more, ledger.used + cost
        local next = ledger.slots > 0 and (ledger.first + index) % ledger.slots or 0
        if entries <= ledger.slots and next + #spent / SLOT_LEN <= ledger.slots then
            ledger.entries, ledger.used = entries, used
            write_in_place(ledger, index, spent)
        else
            write(ledger, in_order(ledger):sub(1, index * SLOT_LEN) .. spent, entries, used)
        end
    end

    -- Forgets the oldest units, of which there are as many. A spend follows, which writes the header.
    function this.forget(ledger, units)
        ledger.used = ledger.used - units
        while units > 0 do
            local _, taken = entry(ledger, 0)
            if taken > units then
                call('SETRANGE', ledger.key, offset(ledger, 0) + 2, pack('<I4', taken - units))
                ledger.bytes = ''
                break
            end
            units = units - taken
            drop(ledger)
        end
        ledger.oldest = count(ledger) > 0 and entry(ledger, 0) or 0
    end

    -- The stamp of a unit, counted from 1 for the oldest.
    function this.unit(ledger, number)
        if ledger.kind == FINE then
            return (entry(ledger, number - 1))
        end
        local index, stamp, units = 0, nil, nil
        repeat
            stamp, units = entry(ledger, index)
            index, number = index + 1, number - units
        until number <= 0
        return stamp
    end

    -- Takes back units from the end of the ring, as far as they have this stamp; tells how many are
    -- still to be found.
    local function refund_last(ledger, units, stamp)
        local index = count(ledger) - 1
        while units > 0 and index >= 0 do
            local at, there = entry(ledger, index)
            if stamp and at ~= stamp then
                break
            elseif there > units then
                call('SETRANGE', ledger.key, offset(ledger, index) + 2, pack('<I4', there - units))
                ledger.bytes, ledger.used, units = '', ledger.used - units, 0
                break
            end
            ledger.used, units, index = ledger.used - there, units - there, index - 1
        end
        ledger.entries = min(ledger.entries, index + 1)
        ledger.pending = ledger.pending:sub(1, (index + 1 - ledger.entries) * SLOT_LEN)
        return units
    end

    -- Takes back the newest units, or the newest of those with this stamp. Nearly always they are
    -- the last ones; else the ledger is written anew.
    function this.refund(ledger, units, stamp)
        units = refund_last(ledger, units, stamp)
        if ledger.used == 0 then
            rewrite(ledger, {})
            return
        end
        if units > 0 and ledger.newest > stamp then
            local runs = runs_of(ledger)
            for i = #runs, 1, -1 do
                if runs[i][1] == stamp then
                    local taken = min(units, runs[i][2])
                    units, runs[i][2] = units - taken, runs[i][2] - taken
                    if runs[i][2] == 0 then
                        table.remove(runs, i)
                    end
                end
            end
            rewrite(ledger, runs)
        else
            ledger.newest = entry(ledger, count(ledger) - 1)
            call('SETRANGE', ledger.key, '0', header(ledger))
        end
    end

    -- Adds runs that were spent elsewhere, oldest first.
    function this.merge(ledger, others)
        local runs, merged = runs_of(ledger), {}
        for _, run in ipairs(others) do
            ledger.used = ledger.used + run[2]
            runs[#runs + 1] = run
        end
        table.sort(runs, function(a, b) return a[1] < b[1] end)
        for _, run in ipairs(runs) do
            append(merged, run[1], run[2])
        end
        settle(ledger, merged)
    end

    return this
end
