-- The text of an error, which begins with its code.
local function text_of(failure)
    -- Since Redis 7 what a command says is in a table. Before, it comes after the place of the call,
    -- as what is said by Lua itself still does.
    local text = type(failure) == 'table' and failure.err or tostring(failure)
    local said = text:gsub('^@?user_script: ?%d+: ?%-?', '')
    return (said:match('^%u+ ') and said or 'ERR ' .. text):sub(1, 1000)
end

local function decide_rest()
    decide_usual()
    while request <= requests do
        answers[request + 1] = decide(first_key, last_key)
        request = request + 1
        decide_usual()
    end
end

if not counts then
    decide_rest()
end
while request <= requests do
    local done, failure = pcall(decide_rest)
    if not done then
        local text = text_of(failure)
        answers[request + 1] = pack('<BI2', FAILED, #text) .. text
        request = request + 1
    end
end
return table.concat(answers)
