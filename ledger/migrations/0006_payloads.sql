-- Small documents by their checksum, each stored with the row that refers to it: job scripts. They are alike but for a part in the
-- middle, so of most only that part is kept, and what they begin and end with is a base's.

CREATE TABLE payload_bases (
  base_id    INTEGER NOT NULL PRIMARY KEY,
  data       BLOB    NOT NULL,
  created_at INTEGER NOT NULL
) STRICT;
CREATE TRIGGER payload_bases_fixed BEFORE UPDATE ON payload_bases
BEGIN SELECT RAISE(ABORT, 'what payloads begin and end with never changes'); END;

CREATE TABLE payloads (
  sha256  BLOB    NOT NULL UNIQUE CHECK (length(sha256) = 32),  -- of the whole
  base_id INTEGER REFERENCES payload_bases,   -- NULL: middle is the whole
  head    INTEGER NOT NULL CHECK (head >= 0), -- so many bytes of the base's beginning,
  middle  BLOB    NOT NULL,                   -- then these,
  tail    INTEGER NOT NULL CHECK (tail >= 0), -- then so many of its end
  CHECK (base_id IS NOT NULL OR head + tail = 0)
) STRICT;
CREATE TRIGGER payloads_fixed BEFORE UPDATE ON payloads
BEGIN SELECT RAISE(ABORT, 'payloads never change'); END;
CREATE TRIGGER payloads_held BEFORE DELETE ON payloads
WHEN EXISTS (SELECT 1 FROM artifacts a WHERE a.sha256 = lower(hex(OLD.sha256)) AND a.removed_at IS NULL)
BEGIN SELECT RAISE(ABORT, 'an artifact has these bytes'); END;
