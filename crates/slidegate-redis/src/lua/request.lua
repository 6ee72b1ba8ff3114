-- Decides one request.
--
-- KEYS     the ledgers, those of one charge together
-- ARGV[1]  for each key: units, window in ms, cost, flags
-- ARGV[2]  a name for this call that no other call has
--
-- Returns whether all was spent, and the time in us; then for each key: units left, and how long
-- until the charge fits and until the first unit is free again, in us.
return decide(1, #KEYS)
