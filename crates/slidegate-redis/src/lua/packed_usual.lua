-- The usual case, without a table where one can be spared: every ledger is as its quota wants it and
-- has a slot for the spend. Anything else is left to `decide`; up to there nothing has been written.
--
-- Numbers are given to commands as texts: Redis itself takes longer to make one of them.
local text = string.format
-- As much of the ring as is looked at together.
local PIECE_LEN = (AHEAD + 1) * SLOT_LEN

-- What is said of a ledger; then the kind it is to be of, its tick, the stamp of a spend and the slots
-- for it, the newest stamp that has left, and whether it is a shadow charge or counts denied requests.
local function terms(number)
    local units, window, cost, flags = unpack(ARGS, ARGV[1], (number - 1) * ARGS_LEN + 1)
    local kind, tick, stamp, slots = FINE, 1, now_ceil_ms, ''
    if units > FINE_UNITS then
        kind, tick = COARSE, math.ceil(window / FINE_UNITS)
        stamp = math.ceil(stamp / tick) * tick
    else
        slots = string.rep(pack('<I6', stamp), cost)
    end
    return units, window, cost, flags, kind, tick, stamp, slots, now_ms - window,
        flags % SAME_CHARGE > 0
end

-- A piece of a ledger that has the slot there, and where the piece begins: the one at hand, if it has.
local function piece_with(at, key, piece, from)
    if at >= from and at + SLOT_LEN <= from + #piece then
        return piece, from
    end
    return call('GETRANGE', key, text('%d', at), text('%d', at + PIECE_LEN - 1)), at
end

-- Drops the entries of a coarse ledger that have left.
local function drop_coarse(key, piece, left, tick, slots, first, entries, used, oldest, newest)
    local from, last, ring = 0, newest / tick, ring_at(slots)
    while entries > 0 and oldest <= left do
        local at = ring + first * SLOT_LEN
        piece, from = piece_with(at, key, piece, from)
        used = used - unpack('<I4', piece, at - from + 3)
        entries, first = entries - 1, (first + 1) % slots
        at = ring + first * SLOT_LEN
        piece, from = piece_with(at, key, piece, from)
        oldest = (last - (last - unpack('<I2', piece, at - from + 1)) % 65536) * tick
    end
    return first, entries, used, oldest
end

-- Spends on a coarse ledger that has a free slot; tells how many entries it has then.
local function spend_coarse(key, piece, cost, tick, stamp, slots, first, entries, used, newest)
    local next, from, there = (first + entries) % slots, 0, 0
    if used > 0 and newest == stamp then
        next = (next - 1) % slots
        local at = ring_at(slots) + next * SLOT_LEN
        piece, from = piece_with(at, key, piece, from)
        there = unpack('<I4', piece, at - from + 3)
    else
        entries = entries + 1
    end
    call('SETRANGE', key, text('%d', ring_at(slots) + next * SLOT_LEN),
        pack('<I2I4', stamp / tick % 65536, there + cost))
    return entries
end

-- Writes a fine ledger whole, in order: its ring is new, full or at its end.
local function write_whole(key, units, window, stamp, slots, first, entries, used, oldest, added)
    local taken = ''
    if entries > 0 then
        local all, start = call('GETRANGE', key, text('%d', ring_at(slots)), '-1'), first * SLOT_LEN
        taken = (all:sub(start + 1) .. all:sub(1, start)):sub(1, entries * SLOT_LEN)
    end
    if used > slots then
        slots = math.min(math.max(8, 2 * slots, used), math.max(units, used))
    end
    local expires = stamp + window + SLACK_MS
    call('SET', key, pack(HEADER, FINE, slots, expires, 0, used, used, oldest, stamp)
        .. string.rep('\0', ring_at(slots) - HEADER_LEN) .. taken .. added
        .. string.rep('\0', (slots - used) * SLOT_LEN), 'PX', expires - now_ms)
end

-- Decides one request after the other, as long as they are usual.
local function decide_usual()
    -- What is used for every request is at hand here.
    local KEYS, answers, call, pack, unpack, sub = KEYS, answers, call, pack, unpack, string.sub
    local now_us, SMALL_RING, SLOT_LEN = now_us, SMALL_RING, SLOT_LEN
    local units, window, cost, flags, kind, tick, stamp, added, left, special
    -- The header of a large ring, and what a spend changes of it, with what was pending and is now.
    local OPEN, LARGE_STATE, LARGE_STATE_LEN = '<BI2I6I2I2I4I6I6B', '<I2I2I4I6I6Bc0c0', 63
    local alike = #ARGV[1] == ARGS_LEN
    if alike then
        units, window, cost, flags, kind, tick, stamp, added, left, special = terms(1)
    end

    while request <= requests do
        local from, to, place = last_key + 1, last_key + 1, request + 1
        if counts ~= '' then
            to = counts and last_key + counts:byte(request) or #KEYS
        end
        first_key, last_key = from, to
        local allowed, spends, room, plain, saved = true, true, true, true, nil
        local key, bytes, there, slots, expires, first, entries, used, oldest, newest, retry_us
        -- How many of the stamps are ahead, and the piece of the ring that new ones are in.
        local ahead, found

        for i = from, to do
            if not alike then
                units, window, cost, flags, kind, tick, stamp, added, left, special = terms(i)
            end
            key, retry_us, found = KEYS[i], 0, false
            bytes = call('GETRANGE', key, '0', HEAD)
            if bytes == '' then
                slots, expires, first, entries, used, oldest, newest, ahead = 0, 0, 0, 0, 0, 0, 0, 0
                room = room and kind == FINE
            else
                there, slots, expires, first, entries, used, oldest, newest, ahead = unpack(OPEN, bytes)
                if there ~= kind or newest > stamp then
                    return
                elseif newest <= left then
                    first, entries, used, ahead = 0, 0, 0, 0
                elseif kind == COARSE then
                    first, entries, used, oldest = drop_coarse(key, bytes, left, tick, slots, first,
                        entries, used, oldest, newest)
                    room = room and entries < slots
                elseif oldest <= left then
                    local piece, piece_from, stamps, stamps_end = bytes, 0, bytes, HEAD_LEN + 1
                    if slots <= SMALL_RING then
                        ahead = 0
                    end
                    repeat
                        if entries < 2 then
                            -- The next is one that is pending.
                            return
                        end
                        first, entries, used = first + 1, entries - 1, used - 1
                        if first == slots then
                            first = 0
                        end
                        if ahead > 0 then
                            oldest = unpack('<I6', stamps, stamps_end - ahead * SLOT_LEN)
                            ahead = ahead - 1
                        else
                            local at = ring_at(slots) + first * SLOT_LEN
                            piece, piece_from = piece_with(at, key, piece, piece_from)
                            oldest = unpack('<I6', piece, at - piece_from + 1)
                            if slots > SMALL_RING and entries > AHEAD
                                and at == piece_from and #piece == PIECE_LEN then
                                ahead, found, stamps, stamps_end = AHEAD, piece, piece, PIECE_LEN + 1
                            end
                        end
                    until oldest > left
                end
            end
            if flags >= DENY then
                return
            elseif flags >= PEEK then
                spends = false
            end
            if special then
                plain = false
            end
            local must_leave = used + cost - units
            if must_leave > 0 then
                allowed = false
                local leaves = oldest
                if must_leave > 1 then
                    if kind == COARSE or must_leave > entries then
                        return
                    end
                    local at = ring_at(slots) + (first + must_leave - 1) % slots * SLOT_LEN
                    local piece, piece_from = piece_with(at, key, bytes, 0)
                    leaves = unpack('<I6', piece, at - piece_from + 1)
                end
                retry_us = (leaves + window) * 1000 - now_us
            end
            if to > from then
                saved = saved or {}
                saved[i] = { units, window, cost, kind, tick, stamp, added, retry_us, bytes, slots,
                    expires, first, entries, used, oldest, newest, ahead, found }
            end
        end

        if allowed then
            if spends and not room then
                return
            end
        elseif plain then
            spends = false
        else
            return
        end
        for i = from, to do
            if saved then
                key = KEYS[i]
                units, window, cost, kind, tick, stamp, added, retry_us, bytes, slots,
                    expires, first, entries, used, oldest, newest, ahead, found = spread(saved[i])
            end
            if spends then
                local state
                if used == 0 then
                    oldest = stamp
                end
                if kind == FINE then
                    local pending, held = used - entries, ''
                    if pending > 0 then
                        held = sub(bytes, PENDING_AT, PENDING_AT - 1 + pending * SLOT_LEN)
                    end
                    used, pending = used + cost, pending + cost
                    if slots > SMALL_RING and pending <= PENDING then
                        -- They get their slots with those that come.
                        state = pack(LARGE_STATE, first, entries, used, oldest, stamp, ahead,
                            held, added)
                    else
                        local next = slots > 0 and (first + entries) % slots or 0
                        if used > slots or next + pending > slots then
                            write_whole(key, units, window, stamp, slots, first, entries, used, oldest,
                                held .. added)
                        else
                            local at = ring_at(slots) + next * SLOT_LEN
                            call('SETRANGE', key, text('%d', at), held .. added)
                            entries = used
                            if slots > SMALL_RING then
                                state = pack(LARGE_STATE, first, entries, used, oldest, stamp, ahead,
                                    '', '')
                            else
                                state = pack(STATE, first, entries, used, oldest, stamp)
                            end
                        end
                    end
                else
                    entries = spend_coarse(key, bytes, cost, tick, stamp, slots, first, entries, used,
                        newest)
                    used = used + cost
                    state = pack(STATE, first, entries, used, oldest, stamp)
                end
                if state then
                    local at = STATE_AT
                    if found then
                        state = state .. string.rep('\0', LARGE_STATE_LEN - #state)
                            .. sub(found, SLOT_LEN + 1)
                    end
                    if expires < stamp + window then
                        -- Long enough that the next spends need not say it again.
                        expires = stamp + window + math.ceil(window / 4) + SLACK_MS
                        call('PEXPIRE', key, expires - now_ms)
                        state, at = pack('<BI2I6', kind, slots, expires) .. state, '0'
                    end
                    call('SETRANGE', key, at, state)
                end
            end
            local answer = pack('<BI4I6I6B', allowed and 1 or 0, units > used and units - used or 0,
                retry_us, used > 0 and (oldest + window) * 1000 - now_us or 0, retry_us == 0 and 1 or 0)
            answers[place] = i == from and answer or answers[place] .. sub(answer, 2)
        end
        request = place
    end
end
