-- The usual case, without a table where one can be spared: every ledger is as its quota wants it and
-- has a slot for the spend. Anything else is left to `decide`; up to there nothing has been written.
--
-- Numbers are given to commands as texts: Redis itself takes longer to make one of them.
local args, key, bytes, from, ring = ARGV[1], nil, nil, nil, nil
local text = string.format

-- What is said of every ledger, if it is the same for all.
local all_units, all_window, all_cost, all_flags
if #args == ARGS_LEN then
    all_units, all_window, all_cost, all_flags = unpack(ARGS, args)
end

-- A part of a slot, which may be in another piece of the string than is at hand.
local function part(format, slot, skip)
    local at = ring + slot * SLOT_LEN - from
    if at < 0 or at + SLOT_LEN > #bytes then
        from = from + at
        bytes, at = call('GETRANGE', key, text('%d', from), text('%d', from + 47)), 0
    end
    return (unpack(format, bytes, at + 1 + skip))
end

-- Decides the request whose ledgers are those from one key to another, if it is usual.
local function decide_usual(first_key, last_key)
    local peek, usual, allowed, room, plain, saved = false, true, true, true, true, nil
    local units, window, cost, flags, stamp, tick, retry_us, reply
    local kind, slots, first, entries, used, oldest, newest, expires, header, ahead, stamps

    for i = first_key, last_key do
        key, tick, stamp, retry_us = KEYS[i], 1, now_ceil_ms, 0
        units, window, cost, flags = all_units, all_window, all_cost, all_flags
        if not units then
            units, window, cost, flags = unpack(ARGS, args, (i - 1) * ARGS_LEN + 1)
        end
        if units > FINE_UNITS then
            tick = math.ceil(window / FINE_UNITS)
            stamp = math.ceil(stamp / tick) * tick
        end
        bytes, from = call('GETRANGE', key, '0', HEAD), 0
        if bytes == '' then
            kind, slots, first, entries, used = units > FINE_UNITS and COARSE or FINE, 0, 0, 0, 0
            ahead, stamps = nil, nil
            room = room and kind == FINE
        else
            kind, slots, expires, first, entries, used, oldest, newest = unpack(HEADER, bytes)
            header, ring, ahead, stamps = bytes, ring_at(slots), nil, nil
            if slots > SMALL_RING then
                ahead = bytes:byte(HEADER_LEN + 1)
            end
            if (kind == COARSE) ~= (units > FINE_UNITS) or newest > stamp then
                usual = false
                break
            end
            if newest + window <= now_ms then
                first, entries, used, ahead = 0, 0, 0, ahead and 0
            end
            while entries > 0 and oldest + window <= now_ms do
                local gone = kind == FINE and 1 or part('<I4', first, 2)
                used, entries, first = used - gone, entries - 1, (first + 1) % slots
                if kind == FINE and ahead and ahead > 0 then
                    oldest = unpack('<I6', stamps or header, (stamps and 1 or HEADER_LEN + 2)
                        + (AHEAD - ahead) * SLOT_LEN)
                    ahead = ahead - 1
                elseif kind == FINE then
                    oldest = part('<I6', first, 0)
                    if ahead and entries > AHEAD and #bytes == (AHEAD + 1) * SLOT_LEN
                        and from == ring + first * SLOT_LEN then
                        ahead, stamps = AHEAD, bytes:sub(SLOT_LEN + 1, (AHEAD + 1) * SLOT_LEN)
                    end
                else
                    local last = newest / tick
                    oldest = (last - (last - part('<I2', first, 0)) % 65536) * tick
                end
            end
            room = room and (kind == FINE or entries < slots)
        end
        if flags >= PEEK then
            peek, usual = flags < DENY, usual and flags < DENY
        end
        -- Whether it is a shadow charge, or counts denied requests.
        plain = plain and flags % SAME_CHARGE == 0
        if used + cost > units then
            allowed = false
            local must_leave = used + cost - units
            if must_leave == 1 then
                retry_us = (oldest + window) * 1000 - now_us
            elseif kind == FINE then
                local leaves = part('<I6', (first + must_leave - 1) % slots, 0)
                retry_us = (leaves + window) * 1000 - now_us
            else
                usual = false
            end
        end
        if last_key > first_key then
            saved = saved or {}
            saved[i] = { units, window, cost, stamp, tick, retry_us, bytes, from, kind, slots,
                first, entries, used, oldest or 0, newest or 0, expires or 0, ahead or false, stamps }
        end
    end

    if usual and ((allowed and (peek or room)) or (not allowed and plain)) then
        for i = first_key, last_key do
            if saved then
                key = KEYS[i]
                units, window, cost, stamp, tick, retry_us, bytes, from, kind, slots,
                    first, entries, used, oldest, newest, expires, ahead, stamps = spread(saved[i])
                ring = ring_at(slots)
            end
            if allowed and not peek then
                local next, slot = slots > 0 and (first + entries) % slots or 0, nil
                if kind == FINE and (entries + cost > slots or next + cost > slots) then
                    -- A ring that is new, full or at its end is put in order and written whole.
                    local taken = ''
                    if entries > 0 then
                        local all, start = call('GETRANGE', key, ring, '-1'), first * SLOT_LEN
                        taken = (all:sub(start + 1) .. all:sub(1, start)):sub(1, entries * SLOT_LEN)
                    else
                        oldest = stamp
                    end
                    first, entries, used, newest = 0, entries + cost, used + cost, stamp
                    if entries > slots then
                        slots = math.min(math.max(8, 2 * slots, entries), math.max(units, entries))
                    end
                    expires = stamp + window + SLACK_MS
                    call('SET', key, pack(HEADER, kind, slots, expires, first, entries, used, oldest, newest)
                        .. string.rep('\0', ring_at(slots) - HEADER_LEN)
                        .. taken .. string.rep(pack('<I6', stamp), cost)
                        .. string.rep('\0', (slots - entries) * SLOT_LEN), 'PX', expires - now_ms)
                else
                    if kind == FINE then
                        slot, entries = pack('<I6', stamp), entries + cost
                        if cost > 1 then
                            slot = string.rep(slot, cost)
                        end
                    else
                        local at_stamp = cost
                        if entries > 0 and newest == stamp then
                            next = (next - 1) % slots
                            at_stamp = cost + part('<I4', next, 2)
                        else
                            entries = entries + 1
                        end
                        slot = pack('<I2I4', stamp / tick % 65536, at_stamp)
                    end
                    if used == 0 then
                        oldest = stamp
                    end
                    used, newest = used + cost, stamp
                    call('SETRANGE', key, text('%d', ring + next * SLOT_LEN), slot)
                    local state, state_at = pack(STATE, first, entries, used, oldest, newest), STATE_AT
                    if expires < stamp + window then
                        -- Long enough that the next spends need not say it again.
                        expires = stamp + window + math.ceil(window / 4) + SLACK_MS
                        call('PEXPIRE', key, expires - now_ms)
                        state, state_at = pack('<BI2I6', kind, slots, expires) .. state, '0'
                    end
                    if ahead then
                        state = state .. string.char(ahead) .. (stamps or '')
                    end
                    call('SETRANGE', key, state_at, state)
                end
            end
            local left = units > used and units - used or 0
            local reset_us = entries > 0 and (oldest + window) * 1000 - now_us or 0
            if reply then
                reply = reply .. pack('<I4I6I6', left, retry_us, reset_us)
            else
                reply = pack('<BI7I4I6I6', allowed and 1 or 0, now_us, left, retry_us, reset_us)
            end
        end
        return reply
    end
end
