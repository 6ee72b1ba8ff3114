-- A packed ledger is one string: a header, then slots of six bytes, those from `first` on taken.
-- Spends append; when no slot is free the string is written anew, without what has left.
--
--   kind     1  FINE: a slot is the stamp of one unit; COARSE: a tick modulo 2^16, and its units
--   slots    2  how many there are
--   expires  6  when the key goes, in ms
--   first    2  the slot of the oldest entry
--   count    2  how many slots are taken
--   used     4  the units of all entries
--   oldest   6  the stamp of the oldest entry, in ms
--   newest   6  the stamp of the newest entry, in ms
--
-- The kinds 1 and 2 were rings of an earlier format, which is not read.
local FINE, COARSE = 3, 4
local HEADER, HEADER_LEN, SLOT_LEN = '<BI2I6I2I2I4I6I6', 29, 6
-- Slots are read in pieces of 16.
local PIECE_SLOTS, PIECE_LEN = 16, 96

local kind, slots, first, count, newest, expires = {}, {}, {}, {}, {}, {}
-- The piece of a ledger that was read last, where it begins, and the number of the ledger's key.
local piece, piece_from, piece_of = '', 0, 0
local fine_now = pack('<I6', now_ceil_ms)

local function settle_kind(i)
    local coarse = units[i] > FINE_UNITS or used[i] > FINE_UNITS
    kind[i] = coarse and COARSE or FINE
    tick[i] = coarse and ceil(window[i] / FINE_UNITS) or 1
end

-- The stamp and the units of an entry, counted from 0 for the oldest.
local function entry(i, index)
    local slot = first[i] + index
    local at = HEADER_LEN + slot * SLOT_LEN
    if piece_of ~= i or at < piece_from or at + SLOT_LEN > piece_from + #piece then
        piece_of, piece_from = i, HEADER_LEN + floor(slot / PIECE_SLOTS) * PIECE_LEN
        piece = call('GETRANGE', KEYS[i], piece_from, piece_from + PIECE_LEN - 1)
    end
    if kind[i] == FINE then
        return unpack('<I6', piece, at - piece_from + 1), 1
    end
    local short, there = unpack('<I2I4', piece, at - piece_from + 1)
    local last = newest[i] / tick[i]
    return (last - (last - short) % 65536) * tick[i], there
end

local function header(i)
    return pack(HEADER, kind[i], slots[i], expires[i], first[i], count[i], used[i], oldest[i], newest[i])
end

-- Writes the ledger anew, of the bytes of all its entries. Slots double while an account grows; once
-- units have left there are an eighth more than are taken.
local function write(i, bytes)
    local taken, most = count[i], kind[i] == FINE and units[i] or FINE_UNITS + 1
    slots[i] = max(taken, first[i] > 0 and taken + ceil(taken / 8) or min(max(8, 2 * taken), most))
    first[i], piece_of = 0, 0
    expires[i] = max(newest[i], now_ms) + window[i] + SLACK_MS
    call('SET', KEYS[i], header(i) .. bytes .. rep('\0', (slots[i] - taken) * SLOT_LEN),
        'PX', expires[i] - now_ms)
end

local function clear(i)
    call('DEL', KEYS[i])
    slots[i], first[i], count[i], used[i], oldest[i], newest[i] = 0, 0, 0, 0, 0, 0
end

-- Writes the ledger anew, of runs in order: in the kind that its units ask for, and with stamps from the
-- future, where a clock that stepped back leaves them, pulled to the present.
local function write_runs(i, runs)
    settle_kind(i)
    local present, stamps, amounts = stamp_of(i, now_ceil_ms), {}, {}
    for _, run in ipairs(runs) do
        local stamp = min(stamp_of(i, run[1]), present)
        if stamps[#stamps] == stamp then
            amounts[#stamps] = amounts[#stamps] + run[2]
        else
            stamps[#stamps + 1], amounts[#stamps + 1] = stamp, run[2]
        end
    end
    if #stamps == 0 then
        return clear(i)
    end
    oldest[i], newest[i] = stamps[1], stamps[#stamps]
    count[i] = kind[i] == FINE and used[i] or #stamps
    for n, stamp in ipairs(stamps) do
        stamps[n] = kind[i] == FINE and rep(pack('<I6', stamp), amounts[n])
            or pack('<I2I4', stamp / tick[i] % 65536, amounts[n])
    end
    write(i, table.concat(stamps))
end

local function runs_of(i)
    local runs = {}
    for index = 0, count[i] - 1 do
        runs[index + 1] = { entry(i, index) }
    end
    return runs
end

local function open(i)
    local key, left = KEYS[i], now_ms - window[i]
    local bytes = call('GETRANGE', key, '0', '28')
    if bytes == '' then
        slots[i], expires[i], first[i], count[i], used[i], oldest[i], newest[i] = 0, 0, 0, 0, 0, 0, 0
        return settle_kind(i)
    end
    local kind_is, slots_is, expires_is, head, taken, sum, old, new = unpack(HEADER, bytes)
    if kind_is ~= FINE and kind_is ~= COARSE then
        error('the value is no ledger of this version')
    end
    local ticks = kind_is == FINE and 1 or ceil(window[i] / FINE_UNITS)
    if new <= left then
        head, taken, sum = 0, 0, 0
    elseif old <= left then
        local at, slots_bytes = 0, ''
        repeat
            -- The entry that leaves and the next are in one piece.
            if at + 2 * SLOT_LEN > #slots_bytes then
                local from = HEADER_LEN + head * SLOT_LEN
                slots_bytes = call('GETRANGE', key, text('%d', from), text('%d', from + PIECE_LEN - 1))
                at = 0
            end
            head, taken = head + 1, taken - 1
            if kind_is == FINE then
                sum, old = sum - 1, unpack('<I6', slots_bytes, at + SLOT_LEN + 1)
            else
                local leaves, short = unpack('<I4I2', slots_bytes, at + 3)
                sum, old = sum - leaves, (new / ticks - (new / ticks - short) % 65536) * ticks
            end
            at = at + SLOT_LEN
        until old > left
    end
    kind[i], slots[i], expires[i], first[i], count[i] = kind_is, slots_is, expires_is, head, taken
    used[i], oldest[i], newest[i], tick[i] = sum, old, new, ticks
    if new > now_ceil_ms + ticks - 1 or (kind_is == FINE) ~= (units[i] <= FINE_UNITS and sum <= FINE_UNITS) then
        if sum == 0 then
            settle_kind(i)
        else
            write_runs(i, runs_of(i))
        end
    end
end

local function spend(i, amount)
    local key, stamp, taken, added = KEYS[i], now_ceil_ms, count[i] + 1, fine_now
    local kind_is, head, sum, ends = kind[i], first[i], used[i] + amount, expires[i]
    if kind_is == COARSE then
        stamp = stamp_of(i, stamp)
        local there = 0
        if used[i] > 0 and newest[i] == stamp then
            taken = taken - 1
            there = select(2, entry(i, taken - 1))
        end
        added = pack('<I2I4', stamp / tick[i] % 65536, there + amount)
    elseif amount > 1 then
        taken, added = taken - 1 + amount, rep(added, amount)
    end
    local old = sum == amount and stamp or oldest[i]
    count[i], used[i], oldest[i], newest[i], piece_of = taken, sum, old, stamp, 0
    local at = HEADER_LEN + (head + taken) * SLOT_LEN - #added
    if head + taken > slots[i] then
        local before = at > HEADER_LEN + head * SLOT_LEN
            and call('GETRANGE', key, HEADER_LEN + head * SLOT_LEN, at - 1) or ''
        return write(i, before .. added)
    end
    if ends < stamp + window[i] then
        -- Long enough that the next spends need not set it again.
        ends = stamp + window[i] + ceil(window[i] / 4) + SLACK_MS
        expires[i] = ends
        call('PEXPIRE', key, text('%d', ends - now_ms))
    end
    call('SETRANGE', key, text('%d', at), added)
    call('SETRANGE', key, '0', pack(HEADER, kind_is, slots[i], ends, head, taken, sum, old, stamp))
end

-- Sets the units of a coarse entry.
local function set_units(i, index, there)
    call('SETRANGE', KEYS[i], HEADER_LEN + (first[i] + index) * SLOT_LEN + 2, pack('<I4', there))
    piece_of = 0
end

local function forget(i, amount)
    used[i] = used[i] - amount
    while amount > 0 do
        local _, there = entry(i, 0)
        if there > amount then
            set_units(i, 0, there - amount)
            break
        end
        amount, first[i], count[i] = amount - there, first[i] + 1, count[i] - 1
    end
    oldest[i] = count[i] > 0 and entry(i, 0) or 0
end

local function unit(i, number)
    if number == 1 then
        return oldest[i]
    elseif kind[i] == FINE then
        return (entry(i, number - 1))
    end
    local index, stamp, there = 0, nil, nil
    repeat
        stamp, there = entry(i, index)
        index, number = index + 1, number - there
    until number <= 0
    return stamp
end

local function refund(i, amount, stamp)
    -- Entries are in order, so those with the stamp are together: from `from` on up to `to`.
    local to = count[i]
    while stamp and to > 0 and entry(i, to - 1) > stamp do
        to = to - 1
    end
    local from = to
    while amount > 0 and from > 0 do
        local at, there = entry(i, from - 1)
        if stamp and at ~= stamp then
            break
        elseif there > amount then
            set_units(i, from - 1, there - amount)
            used[i] = used[i] - amount
            break
        end
        amount, used[i], from = amount - there, used[i] - there, from - 1
    end
    if used[i] == 0 then
        return clear(i)
    end
    local at = HEADER_LEN + first[i] * SLOT_LEN
    if from < to and to < count[i] then
        local later = call('GETRANGE', KEYS[i], at + to * SLOT_LEN, at + count[i] * SLOT_LEN - 1)
        call('SETRANGE', KEYS[i], at + from * SLOT_LEN, later)
    end
    count[i], piece_of = count[i] - (to - from), 0
    oldest[i], newest[i] = entry(i, 0), entry(i, count[i] - 1)
    call('SETRANGE', KEYS[i], '0', header(i))
end

local function merge(i, others)
    local runs = runs_of(i)
    for _, run in ipairs(others) do
        used[i] = used[i] + run[2]
        runs[#runs + 1] = run
    end
    table.sort(runs, function(a, b) return a[1] < b[1] end)
    write_runs(i, runs)
end
