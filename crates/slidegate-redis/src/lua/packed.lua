-- A packed ledger is one string: a header, then a ring of slots of six bytes.
--
--   kind     1  FINE: a slot is the stamp of one unit; COARSE: a tick modulo 2^16, and its units
--   slots    2  how many there are
--   expires  6  when the key goes, in ms
--   first    2  the slot of the oldest entry
--   entries  2  how many slots are taken
--   used     4  the units of all entries
--   oldest   6  the stamp of the oldest entry, in ms
--   newest   6  the stamp of the newest entry, in ms
--
-- Only if there are more than SMALL_RING slots, because in a small ledger they would show:
--
--   ahead    1  how many of the stamps that follow are those of the next oldest entries: the last ones
--   stamps  42  copies of seven slots of a fine ring
--
-- A spend writes one slot and all of this but the first three, whatever the size of the ledger. While units leave as fast as
-- others come, a full account's life, the copies spare seven of eight looks into the ring.
local FINE, COARSE = 1, 2
local HEADER, HEADER_LEN, SLOT_LEN = '<BI2I6I2I2I4I6I6', 29, 6
-- What every spend changes, and where it begins.
local STATE, STATE_AT = '<I2I2I4I6I6', '9'
local SMALL_RING, AHEAD = 128, 7
-- The last byte of what may come before the ring.
local HEAD = '71'

-- Where the ring of so many slots begins.
local function ring_at(slots)
    return slots > SMALL_RING and HEADER_LEN + 1 + AHEAD * SLOT_LEN or HEADER_LEN
end
-- How long a key outlives its window.
local SLACK_MS = 1000
