-- A packed ledger is one string: a header, then a ring of slots of six bytes.
--
--   kind     1  FINE: a slot is the stamp of one unit; COARSE: a tick modulo 2^16, and its units
--   slots    2  how many there are
--   expires  6  when the key goes, in ms
--   first    2  the slot of the oldest entry
--   entries  2  how many slots are taken
--   used     4  the units of all entries, and of those that are pending
--   oldest   6  the stamp of the oldest unit, in ms
--   newest   6  the stamp of the newest unit, in ms
--
-- Only if there are more than SMALL_RING slots, because in a small ledger they would show:
--
--   ahead    1  how many of the stamps at the end are those of the next oldest entries: the last ones
--   pending 42  of a fine ring, the stamps of the newest units, which have no slot yet, oldest first;
--               there are as many as `used` is more than `entries`
--   stamps  42  copies of seven slots of a fine ring
--
-- So that a spend is one look at the header and one write of it, whatever the size of the ledger: of
-- eight spends one writes the slots of all eight, and while units leave as fast as others come, a full
-- account's life, one of eight looks into the ring.
local FINE, COARSE = 1, 2
local HEADER, HEADER_LEN, SLOT_LEN = '<BI2I6I2I2I4I6I6', 29, 6
-- What every spend changes, and where it begins.
local STATE, STATE_AT = '<I2I2I4I6I6', '9'
local SMALL_RING, AHEAD, PENDING = 128, 7, 7
-- Where in the string, counted from 1, the pending stamps begin, and the last byte before the ring.
local PENDING_AT, HEAD_LEN = 31, 114
-- The last byte of what may come before the ring, as Redis counts.
local HEAD = '113'

-- Where the ring of so many slots begins.
local function ring_at(slots)
    return slots > SMALL_RING and HEAD_LEN or HEADER_LEN
end
-- How long a key outlives its window.
local SLACK_MS = 1000
