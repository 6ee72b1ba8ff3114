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
local current, earliest, latest = string.match(head, '^(%d+) (%d+) (%d+)$')
-- A head in another form is as good as none.
current, earliest, latest = current or '0', tonumber(earliest) or 0, tonumber(latest) or 0

if what == 'read' then
    return current ~= version and { current, now_ms, call('HGETALL', map) }
end

-- All entries are looked through only if one may have ended.
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
if what == 'remove' then
    changed = call('HDEL', map, id)
elseif call('HLEN', map) - call('HEXISTS', map, '') >= tonumber(ARGV[6]) and call('HEXISTS', map, id) == 0 then
    changed = 0
else
    local at = now_ceil_ms + ARGV[4]
    earliest, latest = math.min(earliest, at), math.max(latest, at)
    call('HSET', map, id, string.format('%.0f ', at) .. ARGV[5])
end
if changed == 1 and (latest <= now_ms or call('HLEN', map) - call('HEXISTS', map, '') == 0) then
    call('DEL', map)
elseif changed == 1 then
    call('HSET', map, '', string.format('%s %.0f %.0f', version, earliest, latest))
    call('PEXPIREAT', map, string.format('%.0f', latest))
end
return changed
