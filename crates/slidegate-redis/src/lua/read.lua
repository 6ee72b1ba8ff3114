-- Reads ledgers as a whole. KEYS and ARGV[1] are as for a decision. Returns the time in us; then for each
-- key how many entries it has, and of each the stamp in ms and the units, oldest first. Neighbours may have
-- the same stamp.
local answer = { pack('<I8', now_us) }
for i = 1, #KEYS do
    read_terms(i)
    open(i)
    local runs = runs_of(i)
    for n, run in ipairs(runs) do
        runs[n] = pack('<I6I4', spread(run))
    end
    answer[i + 1] = pack('<I2', #runs) .. table.concat(runs)
end
return table.concat(answer)
