-- Decides requests, one after the other, at one time.
--
-- KEYS     the ledgers, those of one request together, and of it those of one charge
-- ARGV[1]  for each key, or once if they are the same for all: units, window in ms, cost, flags
-- ARGV[2]  a name for this call that no other call has
-- ARGV[3]  two bytes for each request, the number of its keys; or nothing, if each has one
--
-- Returns the time in us; then for each request whether all was spent, and for each of its keys: units
-- left, how long until the charge fits and until the first unit is free again, in us, and whether the
-- charge fitted before anything was counted. A request that fails leaves the others alone; for it there
-- is FAILED, and the error with its length.
local DENIED, ALLOWED, FAILED = '\0', '\1', 2

local counts = ARGV[3]
local requests = counts == '' and #KEYS or #counts / 2
local answers, answered = { pack('<I8', now_us) }, 1
local request, next_key = 1, 1

local function decide_rest()
    local pack, read_terms, open, spend = pack, read_terms, open, spend
    local units, window, cost, flags, used, oldest = units, window, cost, flags, used, oldest
    local charge_of, room, fits, now_us = {}, {}, {}, now_us
    while request <= requests do
        local from, to, size = next_key, next_key, answered
        if counts ~= '' then
            to = from + unpack('<I2', counts, 2 * request - 1) - 1
        end
        next_key = to + 1
        local allowed, peek, charge = true, false, from
        for i = from, to do
            read_terms(i)
            open(i)
            local flag = flags[i]
            if flag % (2 * SAME_CHARGE) < SAME_CHARGE then
                charge, fits[i] = i, true
            end
            charge_of[i], room[i] = charge, used[i] + cost[i] <= units[i]
            if not room[i] then
                fits[charge] = false
                allowed = allowed and flag % (2 * SHADOW) >= SHADOW
            end
            if flag >= PEEK then
                peek, allowed = flag < DENY, allowed and flag < DENY
            end
        end
        for i = from, to do
            local limit, span, retry_us, flag = units[i], window[i], 0, flags[i]
            -- A cost above the units uses all of them up.
            local amount = min(cost[i], limit)
            local spends = allowed and not peek and fits[charge_of[i]]
            if spends then
                spend(i, amount)
            elseif not peek then
                -- A denial that this charge has caused is counted where there was no room.
                local counts = flag % 2 == COUNT_DENIED and (fits[charge_of[i]] or not room[i])
                if counts or flag % (2 * RECORD) >= RECORD then
                    record(i, amount)
                end
            end
            local now_used = used[i]
            if not spends and now_used + amount > limit then
                retry_us = (unit(i, now_used + amount - limit) + span) * 1000 - now_us
            end
            local left = limit > now_used and limit - now_used or 0
            local reset_us = now_used > 0 and (oldest[i] + span) * 1000 - now_us or 0
            if i == from then
                size = size + 1
                answers[size] = allowed and ALLOWED or DENIED
            end
            size = size + 1
            answers[size] = pack('<I4I6I6B', left, retry_us, reset_us, room[i] and 1 or 0)
        end
        answered, request = size, request + 1
    end
end

-- The text of an error, which begins with its code.
local function text_of(failure)
    -- Since Redis 7 the error of a command is a table. Before, and for errors of Lua itself, it is a
    -- string that begins with the place of the call.
    local said = type(failure) == 'table' and failure.err or tostring(failure)
    local plain = said:gsub('^@?user_script: ?%d+: ?%-?', '')
    return (plain:match('^%u+ ') and plain or 'ERR ' .. said):sub(1, 1000)
end

while request <= requests do
    local done, failure = pcall(decide_rest)
    if not done then
        local message = text_of(failure)
        answered, request = answered + 1, request + 1
        answers[answered] = pack('<BI2', FAILED, #message) .. message
    end
end
return table.concat(answers, '', 1, answered)
