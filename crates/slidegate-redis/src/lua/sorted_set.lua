-- A sorted-set ledger: one member for each unit, its score the stamp in the unit that is set.
-- Limiters that keep a sliding log the usual way read and write the same.
--
-- Before this stand TIMES and PARTS, by which a time in ms is multiplied and divided to be a score; PAD,
-- which is added to a score so that a stamp that is no exact double is rounded up and never down; and
-- SLOP, in ms, more than that adds to a stamp, and about the resolution of the clock, which is taken off
-- when a score is read.

-- The score of a stamp. Lua itself would write 14 digits.
local function score_of(stamp)
    return text('%.17g', stamp * TIMES / PARTS + PAD)
end

-- The greatest score that is read as this stamp.
local function last_score_of(stamp)
    return text('%.17g', (stamp + SLOP) * TIMES / PARTS)
end

-- The time in ms of the member at this rank, whose score may be known; nothing if there is none. A time in
-- another unit, of which one is a thousand of the next, is an error.
local function time_at(i, rank, score)
    score = score or call('ZRANGE', KEYS[i], rank, rank, 'WITHSCORES')[2]
    if not score then
        return nil
    end
    local ms = tonumber(score) * PARTS / TIMES
    local ratio = ms / now_ms
    if ratio > 30 and ratio < 3e10 or ratio < 1 / 30 and ratio > 1 / 3e10 then
        error('SCOREUNIT the score ' .. score .. ' is a time in another unit', 0)
    end
    return ms - SLOP
end

-- The scores of a spend at this moment, and beyond it, where ticks are milliseconds.
local fine_score, beyond_fine = score_of(now_ceil_ms), '(' .. last_score_of(now_ceil_ms)

-- Adds members, in pieces that a call can take.
local function add(i, score, names)
    for from = 1, #names, 2000 do
        local scored = {}
        for n = from, min(from + 1999, #names) do
            scored[#scored + 1] = score
            scored[#scored + 1] = names[n]
        end
        call('ZADD', KEYS[i], spread(scored))
    end
end

-- Long enough for ticks of either kind: units may grow while there are members.
local function keep(i)
    call('PEXPIRE', KEYS[i], text('%d', window[i] + ceil(window[i] / FINE_UNITS) + SLACK_MS))
end

-- Sets the stamp of the oldest. Others write scores that are no ticks, which are read as the next one.
local function set_oldest(i, time_ms)
    oldest[i] = time_ms and stamp_of(i, ceil(time_ms)) or 0
end

-- Pulls members that are in the future to the present.
local function pull(i, present, beyond)
    repeat
        local ahead = call('ZRANGEBYSCORE', KEYS[i], beyond, '+inf', 'LIMIT', 0, FINE_UNITS)
        add(i, score_of(present), ahead)
    until #ahead < FINE_UNITS
    set_oldest(i, time_at(i, '0'))
end

local function open(i)
    local key, coarse_tick, first_ms = KEYS[i], ceil(window[i] / FINE_UNITS), time_at(i, '0')
    tick[i], used[i] = units[i] > FINE_UNITS and coarse_tick or 1, 0
    local left = floor((now_ms - window[i]) / tick[i]) * tick[i]
    if first_ms and first_ms <= left then
        call('ZREMRANGEBYSCORE', key, '-inf', last_score_of(left))
        first_ms = time_at(i, '0')
    end
    if not first_ms then
        oldest[i] = 0
        return
    end
    used[i] = call('ZCARD', key)
    if used[i] > FINE_UNITS then
        tick[i] = coarse_tick
    end
    set_oldest(i, first_ms)
    -- A clock that stepped back, or another's that is ahead, leaves stamps in the future.
    local present, beyond = now_ceil_ms, beyond_fine
    if tick[i] > 1 then
        present = stamp_of(i, now_ceil_ms)
        beyond = '(' .. last_score_of(present)
    end
    if call('ZCOUNT', key, beyond, '+inf') > 0 then
        time_at(i, '-1')
        pull(i, present, beyond)
    end
end

local function spend(i, amount)
    local stamp, score, name = now_ceil_ms, fine_score, ARGV[2] .. ':' .. i
    if tick[i] > 1 then
        stamp = stamp_of(i, stamp)
        score = score_of(stamp)
    end
    if amount == 1 then
        call('ZADD', KEYS[i], score, name)
    else
        local names = {}
        for n = 1, amount do
            names[n] = name .. ':' .. n
        end
        add(i, score, names)
    end
    keep(i)
    if used[i] == 0 then
        oldest[i] = stamp
    end
    used[i] = used[i] + amount
end

local function forget(i, amount)
    call('ZREMRANGEBYRANK', KEYS[i], 0, amount - 1)
    used[i] = used[i] - amount
    set_oldest(i, time_at(i, '0'))
end

local function unit(i, number)
    return number == 1 and oldest[i] or stamp_of(i, ceil(time_at(i, number - 1)))
end

local function refund(i, amount, stamp)
    local from, to = '-inf', '+inf'
    if stamp then
        -- Whatever is read as this stamp.
        from, to = '(' .. last_score_of(stamp - tick[i]), last_score_of(stamp)
    end
    local names = call('ZREVRANGEBYSCORE', KEYS[i], to, from, 'LIMIT', 0, amount)
    for first = 1, #names, 2000 do
        call('ZREM', KEYS[i], spread(names, first, min(first + 1999, #names)))
    end
end

local function runs_of(i)
    local runs, read = {}, 0
    -- Of many members, only the first of each stamp is read. Rounding may place even that beyond the stamp.
    local all = used[i] <= FINE_UNITS and call('ZRANGE', KEYS[i], '0', '-1', 'WITHSCORES')
    while read < used[i] do
        local stamp = stamp_of(i, ceil(time_at(i, read, all and all[2 * read + 2])))
        local upto = all and 0 or call('ZCOUNT', KEYS[i], '-inf', last_score_of(stamp))
        runs[#runs + 1], read = { stamp, max(1, upto - read) }, max(upto, read + 1)
    end
    return runs
end

local function merge(i, runs)
    for number, run in ipairs(runs) do
        local names = {}
        for n = 1, run[2] do
            names[n] = KEYS[#KEYS] .. ':' .. number .. ':' .. n
        end
        add(i, score_of(run[1]), names)
    end
    keep(i)
end
