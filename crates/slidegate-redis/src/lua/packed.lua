-- A packed ledger is one string: a header, then a ring of slots of six bytes.
--
--   kind     1  FINE: a slot is the stamp of one unit; COARSE: a tick modulo 2^16, and its units
--   slots    2  how many there are
--   first    2  the slot of the oldest entry
--   entries  2  how many slots are taken
--   used     4  the units of all entries
--   oldest   6  the stamp of the oldest entry, in ms
--   newest   6  the stamp of the newest entry, in ms
--   expires  6  when the key goes, in ms
--
-- A spend writes one slot and the header, whatever the size of the ledger.
local FINE, COARSE = 1, 2
local HEADER, HEADER_LEN, SLOT_LEN = '<BI2I2I2I4I6I6I6', 29, 6
-- The last byte of the header.
local HEAD = '28'
-- How long a key outlives its window.
local SLACK_MS = 1000
