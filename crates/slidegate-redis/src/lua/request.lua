-- Decides one request.
--
-- KEYS     the ledgers, those of one charge together
-- ARGV[1]  for each key: units, window in ms, cost, flags
-- ARGV[2]  a name for this call that no other call has
--
-- Returns the time in us; then whether all was spent, and for each key: units left, how long until the
-- charge fits and until the first unit is free again, in us, and whether the charge fitted before
-- anything was counted.
return pack('<I8', now_us) .. decide(1, #KEYS)
