-- When this ledger was restored from a backup, or begun anew although there had been one. Workspaces and stored bytes older than the
-- newest of these may belong to runs that it does not know.
CREATE TABLE restores (
  restore_id INTEGER NOT NULL PRIMARY KEY,
  at         INTEGER NOT NULL,
  backup_at  INTEGER,                       -- NULL: begun anew
  source     TEXT    NOT NULL               -- where the backup was
) STRICT;

-- Sites that start no new runs for now.
CREATE TABLE drains (
  site      TEXT    NOT NULL PRIMARY KEY,
  queue     INTEGER NOT NULL CHECK (queue IN (0, 1)), -- 1: new runs are accepted and wait; 0: they are refused
  reason    TEXT    NOT NULL,
  principal TEXT    NOT NULL,               -- name of who drained it
  since     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
