-- Adds units whether they fit or not. Where they do not, they take the place of as many of the oldest.
local function record(i, amount)
    local lacking = used[i] + amount - units[i]
    if lacking > 0 and used[i] > 0 then
        forget(i, min(lacking, amount, used[i]))
    end
    spend(i, amount)
end
