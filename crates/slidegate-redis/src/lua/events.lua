-- A log of events in one stream. Each entry has the name of the log, by which its readers notice that
-- Redis has lost it and another has begun; when the event ends, in ms; and a text.
--
-- KEYS[1]  the stream
-- ARGV[1]  'append' or 'read'
-- append:  ARGV[2] how many entries there can be; ARGV[3] a name, should a log begin; then, for each
--          event, how long it lasts in ms, or 0 if it is only worth keeping beside the entries before
--          it, and its text
-- read:    ARGV[2] the name and the id of the last entry that is known, or ''; ARGV[3] how many to
--          return
local log = KEYS[1]
local last = call('XREVRANGE', log, '+', '-', 'COUNT', 1)[1]

if ARGV[1] == 'append' then
    local name = last and last[2][2] or ARGV[3]
    local left = call('PTTL', log)
    for i = 4, #ARGV, 2 do
        local lasting = tonumber(ARGV[i])
        if lasting > 0 or left > 0 then
            local at = string.format('%.0f', now_ceil_ms + lasting)
            call('XADD', log, 'MAXLEN', ARGV[2], '*', 'log', name, 'until_ms', at, 'text', ARGV[i + 1])
            left = math.max(left, lasting)
        end
    end
    if left > 0 then
        call('PEXPIRE', log, string.format('%.0f', left))
    end
    return 1
end

local position, after, restarted = ARGV[2], '0-0', 0
if position ~= '' then
    local name, id = string.match(position, '^(%S+) (%S+)$')
    -- The entry that is known is in another log, or was lost together with all after it.
    if not last or last[2][2] ~= name or #call('XREVRANGE', log, '+', id, 'COUNT', 1) == 0 then
        position, restarted = '', 1
    else
        after = id
    end
end
local events = {}
local streams = call('XREAD', 'COUNT', ARGV[3], 'STREAMS', log, after)
for _, entry in ipairs(streams and streams[1][2] or {}) do
    position = entry[2][2] .. ' ' .. entry[1]
    events[#events + 1] = entry[2][4]
    events[#events + 1] = entry[2][6]
end
return { position, now_ms, restarted, events }
