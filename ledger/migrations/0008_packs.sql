-- What runs are judged by: the normalised definition of each pack that a run was planned with, with its resolved schemas, once.
CREATE TABLE packs (
  pack_hash  TEXT    NOT NULL PRIMARY KEY CHECK (pack_hash GLOB 'sha256:*'),
  definition TEXT    NOT NULL,              -- canonical JSON
  created_at INTEGER NOT NULL
) STRICT;
