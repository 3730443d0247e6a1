-- What directory artifacts consist of: the object with the list of the files is the artifact's own, and these are the objects it names. They
-- are held as long as an artifact with that list is there. A list is written in parts; it counts once it is whole.
CREATE TABLE directories (
  directory_id INTEGER PRIMARY KEY,
  sha256 TEXT NOT NULL UNIQUE,
  list_bytes INTEGER NOT NULL CHECK (list_bytes > 0),
  files INTEGER NOT NULL CHECK (files > 0),
  whole INTEGER NOT NULL CHECK (whole IN (0, 1)),
  added_at INTEGER NOT NULL
) STRICT;
CREATE TABLE directory_files (
  directory_id INTEGER NOT NULL REFERENCES directories ON DELETE CASCADE,
  sha256 BLOB NOT NULL CHECK (length(sha256) = 32),
  size_bytes INTEGER NOT NULL CHECK (size_bytes >= 0),
  PRIMARY KEY (directory_id, sha256)
) STRICT, WITHOUT ROWID;
CREATE INDEX directory_files_by_object ON directory_files (sha256);
