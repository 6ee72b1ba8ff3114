-- Decides requests, one after the other, at one time.
--
-- KEYS     the ledgers, those of one request together, and of it those of one charge
-- ARGV[1]  for each key, or once if they are the same for all: units, window in ms, cost, flags
-- ARGV[2]  if there are several requests: a byte for each, the number of its keys
--
-- Returns for each request whether all was spent, and the time in us; then for each of its keys:
-- units left, and how long until the charge fits and until the first unit is free again, in us.
-- Of several requests, one that fails leaves the others alone; for it there is FAILED, and the error
-- with its length.
local FAILED = 2

-- The text of an error, which begins with its code.
local function text_of(failure)
    -- Since Redis 7 what a command says is in a table. Before, it comes after the place of the call,
    -- as what is said by Lua itself still does.
    local text = type(failure) == 'table' and failure.err or tostring(failure)
    local said = text:gsub('^@?user_script: ?%d+: ?%-?', '')
    return (said:match('^%u+ ') and said or 'ERR ' .. text):sub(1, 1000)
end

local function answer(from, to)
    return decide_usual(from, to) or decide(from, to)
end

local counts = ARGV[2]
if not counts then
    return answer(1, #KEYS)
end

local answers, i, to = {}, 1, 0
local function answer_rest()
    while i <= #counts do
        local from = to + 1
        to = to + counts:byte(i)
        answers[i] = answer(from, to)
        i = i + 1
    end
end

while i <= #counts do
    local done, failure = pcall(answer_rest)
    if not done then
        local text = text_of(failure)
        answers[i] = pack('<BI2', FAILED, #text) .. text
        i = i + 1
    end
end
return table.concat(answers)
