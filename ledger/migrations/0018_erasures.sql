-- Secrets that were erased. The proof is in the history (secret.erased); these rows say what is left to do, and what is no longer readable.

CREATE TABLE erasures (
  erasure_id  TEXT    NOT NULL PRIMARY KEY CHECK (erasure_id GLOB 'ers_*'),
  principal   TEXT    NOT NULL,             -- name of who erased it
  reason      TEXT    NOT NULL,
  secret_hmac TEXT    NOT NULL CHECK (length(secret_hmac) = 64), -- with this ledger's own key
  begun_at    INTEGER NOT NULL,
  ended_at    INTEGER                       -- NULL: something of it is left to do
) STRICT;
CREATE TRIGGER erasures_keep BEFORE DELETE ON erasures
BEGIN SELECT RAISE(ABORT, 'erasures are never deleted'); END;

-- What is to be removed after the ledger's own transaction.
CREATE TABLE erasure_items (
  erasure_id TEXT    NOT NULL REFERENCES erasures,
  kind       TEXT    NOT NULL CHECK (kind IN ('object', 'workspace', 'ledger')),
  name       TEXT    NOT NULL,
  done_at    INTEGER,
  PRIMARY KEY (erasure_id, kind, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX erasure_items_open ON erasure_items (erasure_id) WHERE done_at IS NULL;

-- Documents that no longer have the hash they are stored under.
CREATE TABLE erased_documents (
  tbl        TEXT NOT NULL,
  key        TEXT NOT NULL,
  erasure_id TEXT NOT NULL REFERENCES erasures,
  PRIMARY KEY (tbl, key)
) STRICT, WITHOUT ROWID;

ALTER TABLE artifacts ADD COLUMN erased TEXT REFERENCES erasures; -- its bytes held a secret and are gone; removed_at is set too
CREATE INDEX artifacts_erased ON artifacts (sha256) WHERE erased IS NOT NULL;
