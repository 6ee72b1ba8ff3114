-- What processes share, in four keys of one slot. Entries and members are hashes: under each id when
-- it ends, in ms, a space, and its text; under the empty id the version, a time at which nothing has
-- ended yet, and one at which everything has. Events are a stream: each has the name of the log, by
-- which its readers notice that Redis has lost it and another has begun; when it ends, in ms; and a
-- text. The secret is a string.
--
-- KEYS     entries, events, members, secret
-- ARGV[1]  'insert', 'remove', 'leave', 'append' or 'exchange'; after it, to
-- insert   the version that the change makes, the id, how long it lasts in ms, the text, and how many
--          entries there can be
-- remove, leave   the version that the change makes, and the id
-- append   how many events there can be; a name, should a log begin; then, for each event, how long it
--          lasts in ms, or 0 if it is only worth keeping beside the events before it, and its text
-- exchange the version that is known, or ''; the name of the log and the id of the last event that is
--          known, or ''; how many events to return; then, if there is a heartbeat, what insert has, a
--          secret should there be none, or '', and how long the secret lasts in ms
local entries, log, members, secret_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function head(map)
    local version, earliest, latest = string.match(call('HGET', map, '') or '', '^(%d+) (%d+) (%d+)$')
    -- A head in another form is as good as none.
    return version or '0', tonumber(earliest) or 0, tonumber(latest) or 0
end

-- Removes the id, or inserts it if it is to last.
local function change(map, version, id, lasting_ms, text, most)
    local _, earliest, latest = head(map)
    -- All are looked through only if one may have ended.
    if now_ms >= earliest then
        local all = call('HGETALL', map)
        earliest, latest = math.huge, 0
        for i = 1, #all, 2 do
            local at = tonumber(string.match(all[i + 1], '^(%d+) ')) or 0
            if all[i] ~= '' and at <= now_ms then
                call('HDEL', map, all[i])
            elseif all[i] ~= '' then
                earliest, latest = math.min(earliest, at), math.max(latest, at)
            end
        end
    end
    local changed = 1
    if not lasting_ms then
        changed = call('HDEL', map, id)
    elseif call('HLEN', map) - call('HEXISTS', map, '') >= tonumber(most) and call('HEXISTS', map, id) == 0 then
        changed = 0
    else
        local at = now_ceil_ms + lasting_ms
        earliest, latest = math.min(earliest, at), math.max(latest, at)
        call('HSET', map, id, string.format('%.0f ', at) .. text)
    end
    if changed == 1 and (latest <= now_ms or call('HLEN', map) - call('HEXISTS', map, '') == 0) then
        call('DEL', map)
    elseif changed == 1 then
        call('HSET', map, '', string.format('%s %.0f %.0f', version, earliest, latest))
        call('PEXPIREAT', map, string.format('%.0f', latest))
    end
    return changed
end

local function append(most, new_name, ...)
    local last = call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
    local name = last and last[2][2] or new_name
    local left, events = call('PTTL', log), { ... }
    for i = 1, #events, 2 do
        local lasting = tonumber(events[i])
        if lasting > 0 or left > 0 then
            local at = string.format('%.0f', now_ceil_ms + lasting)
            call('XADD', log, 'MAXLEN', most, '*', 'log', name, 'until_ms', at, 'text', events[i + 1])
            left = math.max(left, lasting)
        end
    end
    if left > 0 then
        call('PEXPIRE', log, string.format('%.0f', left))
    end
    return 1
end

-- The secret, which is the proposed one if there was none.
local function agree(proposed, lasting_ms)
    -- As GET does, with a command that ledgers need too.
    local secret = call('GETRANGE', secret_key, 0, -1)
    if secret ~= '' then
        call('PEXPIRE', secret_key, lasting_ms)
    elseif proposed ~= '' then
        call('SET', secret_key, proposed, 'PX', lasting_ms)
        secret = proposed
    end
    return secret ~= '' and secret
end

local function exchange(known, position, most_events, ...)
    local version = head(entries)
    local after, restarted = '0-0', 0
    if position ~= '' then
        local last = call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]
        local name, id = string.match(position, '^(%S+) (%S+)$')
        -- The event that is known is in another log, or was lost together with all after it.
        if not last or last[2][2] ~= name or #call('XREVRANGE', log, '+', id, 'COUNT', 1) == 0 then
            position, restarted = '', 1
        else
            after = id
        end
    end
    local events = {}
    local streams = call('XREAD', 'COUNT', most_events, 'STREAMS', log, after)
    for _, event in ipairs(streams and streams[1][2] or {}) do
        position = event[2][2] .. ' ' .. event[1]
        for _, part in ipairs({ event[1], event[2][4], event[2][6] }) do
            events[#events + 1] = part
        end
    end
    local beats = select('#', ...) > 0
    if beats then
        change(members, ...)
    end
    return {
        now_ms, version, version ~= known and call('HGETALL', entries),
        position, restarted, events, beats and call('HGETALL', members),
        beats and agree(select(6, ...)),
    }
end

local operations = {
    insert = function(...) return change(entries, ...) end,
    remove = function(...) return change(entries, ...) end,
    leave = function(...) return change(members, ...) end,
    append = append,
    exchange = exchange,
}
return operations[ARGV[1]](spread(ARGV, 2))
