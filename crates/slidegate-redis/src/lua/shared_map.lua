-- A map of entries in one hash: under each entry's id when it ends, in ms, a space, and its text;
-- under the empty id the version, a time at which no entry has ended yet, and one at which all have.
--
-- KEYS[1]  the map
-- ARGV[1]  'read', 'insert' or 'remove'
-- ARGV[2]  to read: the version that is known; else: the version that a change makes
-- ARGV[3]  the id
-- ARGV[4]  to insert: how long it lasts, in ms
-- ARGV[5]  to insert: the text
-- ARGV[6]  to insert: how many entries there can be
local map, what, version, id = KEYS[1], ARGV[1], ARGV[2], ARGV[3]
local head = call('HGET', map, '') or '0 0 0'
local current, earliest, latest = string.match(head, '^(%S+) (%d+) (%d+)$')
-- A head that nobody here has written is as good as none.
current, earliest, latest = current or '0', tonumber(earliest) or 0, tonumber(latest) or 0

local function ends(entry)
    return tonumber(string.match(entry, '^(%d+) ')) or 0
end

if what == 'read' then
    if current == version then
        return false
    end
    local reply, all = { current, now_ms }, call('HGETALL', map)
    for i = 1, #all, 2 do
        if all[i] ~= '' and ends(all[i + 1]) > now_ms then
            reply[#reply + 1] = all[i]
            reply[#reply + 1] = all[i + 1]
        end
    end
    return reply
end

-- Looks through all entries only if one may have ended.
local function sweep()
    if now_ms < earliest then
        return
    end
    local all = call('HGETALL', map)
    earliest, latest = math.huge, 0
    for i = 1, #all, 2 do
        local at = ends(all[i + 1])
        if all[i] ~= '' and at <= now_ms then
            call('HDEL', map, all[i])
        elseif all[i] ~= '' then
            earliest, latest = math.min(earliest, at), math.max(latest, at)
        end
    end
end

local function write_head()
    if latest <= now_ms then
        call('DEL', map)
        return
    end
    call('HSET', map, '', string.format('%s %.0f %.0f', version, earliest, latest))
    call('PEXPIREAT', map, string.format('%.0f', latest))
end

sweep()
if what == 'remove' then
    local removed = call('HDEL', map, id)
    if removed == 1 and call('HLEN', map) <= 1 then
        call('DEL', map)
    elseif removed == 1 then
        write_head()
    end
    return removed
end

local count = call('HLEN', map) - call('HEXISTS', map, '')
if count >= tonumber(ARGV[6]) and call('HEXISTS', map, id) == 0 then
    return 0
end
local at = now_ceil_ms + ARGV[4]
earliest, latest = math.min(earliest, at), math.max(latest, at)
call('HSET', map, id, string.format('%.0f ', at) .. ARGV[5])
write_head()
return 1
