-- A sorted-set ledger: a member of its own for each unit, its score the stamp in the unit that is set.
-- Limiters that keep a sliding log the usual way read and write the same.
--
-- Before this stand TIMES and PARTS, by which a time in ms is multiplied and divided to be a score; PAD,
-- which is added to a score so that a stamp that is no exact double is rounded up and never down; and
-- SLOP, in ms, more than that adds to a stamp, and about the resolution of the clock, which is taken off
-- when a score is read.
local SLACK_MS = 1000

local function layout()
    local ceil, floor, min, text = math.ceil, math.floor, math.min, string.format

    -- The score of a stamp. Lua itself would write 14 digits.
    local function score_of(stamp)
        return text('%.17g', stamp * TIMES / PARTS + PAD)
    end

    -- The greatest score that is read as this stamp.
    local function last_score_of(stamp)
        return text('%.17g', (stamp + SLOP) * TIMES / PARTS)
    end

    -- Fails if the score at this rank is a time in another unit: one is a thousand of the next.
    local function check_unit(key, rank)
        local score = call('ZRANGE', key, rank, rank, 'WITHSCORES')[2]
        local ratio = tonumber(score) * PARTS / TIMES / now_ms
        if ratio > 30 and ratio < 3e10 or ratio < 1 / 30 and ratio > 1 / 3e10 then
            error('SCOREUNIT the score ' .. score .. ' is a time in another unit', 0)
        end
    end

    local function tick_of(ledger)
        return ledger.coarse and ceil(ledger.window / FINE_UNITS) or 1
    end

    -- The stamp of a spend at this moment.
    local function stamp_of(ledger, ceil_ms)
        local tick = tick_of(ledger)
        return ceil(ceil_ms / tick) * tick
    end

    -- The stamp of a member by its place from the oldest, counted from 0: others write scores that
    -- are no ticks.
    local function stamp_at(ledger, place)
        local found = call('ZRANGE', ledger.key, place, place, 'WITHSCORES')
        return stamp_of(ledger, ceil(tonumber(found[2]) * PARTS / TIMES - SLOP))
    end

    -- Adds members, in pieces that a call can take.
    local function add(ledger, stamp, names)
        local score = score_of(stamp)
        for from = 1, #names, 2000 do
            local scored = {}
            for i = from, min(from + 1999, #names) do
                scored[#scored + 1] = score
                scored[#scored + 1] = names[i]
            end
            call('ZADD', ledger.key, spread(scored))
        end
    end

    local function drop(ledger, names)
        for from = 1, #names, 2000 do
            call('ZREM', ledger.key, spread(names, from, min(from + 1999, #names)))
        end
    end

    -- Long enough for ticks of either kind: units may grow while there are members.
    local function keep(ledger)
        call('PEXPIRE', ledger.key, ledger.window + ceil(ledger.window / FINE_UNITS) + SLACK_MS)
    end

    -- Counts what is there, once what has left the window is not.
    local function count(ledger)
        ledger.used = call('ZCARD', ledger.key) - ledger.gone
        -- As it is found; what is forgotten or added since changes no tick.
        if ledger.coarse == nil then
            ledger.coarse = ledger.used > FINE_UNITS
        end
        ledger.oldest = ledger.used > 0 and stamp_at(ledger, ledger.gone) or 0
    end

    local function forget_expired(ledger)
        if ledger.gone > 0 then
            call('ZREMRANGEBYRANK', ledger.key, 0, ledger.gone - 1)
            ledger.gone = 0
        end
    end

    local this = { stamp_of = stamp_of }

    function this.open(key, units, window)
        local ledger = { key = key, units = units, window = window }
        ledger.coarse = units > FINE_UNITS or nil
        -- A stamp that is not a tick is read as the next one.
        local tick = tick_of(ledger)
        local gone = last_score_of(floor((now_ms - window) / tick) * tick)
        ledger.gone = call('ZCOUNT', key, '-inf', gone)
        if ledger.gone > 0 then
            check_unit(key, 0)
        end
        count(ledger)
        local present = stamp_of(ledger, now_ceil_ms)
        -- A clock that stepped back, or another's that is ahead, leaves stamps in the future.
        local pulled = false
        repeat
            local ahead = call('ZRANGEBYSCORE', key, '(' .. last_score_of(present), '+inf',
                'LIMIT', 0, FINE_UNITS)
            if #ahead > 0 then
                check_unit(key, -1)
            end
            add(ledger, present, ahead)
            pulled = pulled or #ahead > 0
        until #ahead < FINE_UNITS
        if pulled then
            count(ledger)
        end
        return ledger
    end

    function this.spend(ledger, cost)
        forget_expired(ledger)
        local stamp, names = stamp_of(ledger, now_ceil_ms), {}
        for i = 1, cost do
            names[i] = ARGV[2] .. ':' .. i
        end
        add(ledger, stamp, names)
        keep(ledger)
        count(ledger)
    end

    -- Forgets the oldest units.
    function this.forget(ledger, units)
        ledger.gone = ledger.gone + units
        forget_expired(ledger)
        count(ledger)
    end

    -- The stamp of a unit, counted from 1 for the oldest.
    function this.unit(ledger, number)
        return stamp_at(ledger, ledger.gone + number - 1)
    end

    -- Takes back the newest units, or those with this stamp.
    function this.refund(ledger, units, stamp)
        local from, to = '-inf', '+inf'
        if stamp then
            -- Whatever is read as this stamp.
            from, to = '(' .. last_score_of(stamp - tick_of(ledger)), last_score_of(stamp)
        end
        local range = { 'ZREVRANGEBYSCORE', ledger.key, to, from, 'LIMIT', 0, units }
        forget_expired(ledger)
        drop(ledger, call(spread(range)))
        count(ledger)
    end

    -- Adds runs that were spent elsewhere.
    function this.merge(ledger, runs)
        forget_expired(ledger)
        for number, run in ipairs(runs) do
            local names = {}
            for i = 1, run[2] do
                names[i] = KEYS[#KEYS] .. ':' .. number .. ':' .. i
            end
            add(ledger, run[1], names)
        end
        keep(ledger)
        count(ledger)
    end

    return this
end
