-- How the job of an attempt gets those of its inputs that are not copied: JSON, dest_relpath -> bound or in_place. NULL: all are copied.
ALTER TABLE attempts ADD COLUMN strengths TEXT;

-- Files that were registered by their checksum and stay where they are, by the path at which the nodes of a site see them. state: inode, size,
-- mtime and ctime while they were hashed.
CREATE TABLE places (
  site   TEXT    NOT NULL,
  path   TEXT    NOT NULL,
  sha256 TEXT    NOT NULL CHECK (length(sha256) = 64),
  state  TEXT    NOT NULL,
  at     INTEGER NOT NULL,
  PRIMARY KEY (site, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX places_sha256 ON places (sha256);
