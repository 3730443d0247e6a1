-- The keys that receipts are signed with. One signs; a retired one verifies what it signed, and its secret is gone.
CREATE TABLE receipt_keys (
  key_id     TEXT    NOT NULL PRIMARY KEY CHECK (length(key_id) = 64), -- hex SHA-256 of the SubjectPublicKeyInfo in DER
  public     BLOB    NOT NULL CHECK (length(public) = 32),             -- ed25519
  secret     BLOB             CHECK (length(secret) = 64),
  created_at INTEGER NOT NULL,
  retired_at INTEGER,
  CHECK ((secret IS NULL) = (retired_at IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX receipt_keys_one ON receipt_keys ((1)) WHERE retired_at IS NULL;
CREATE TRIGGER receipt_keys_fixed BEFORE UPDATE ON receipt_keys
WHEN OLD.retired_at IS NOT NULL OR (NEW.key_id, NEW.public, NEW.created_at) IS NOT (OLD.key_id, OLD.public, OLD.created_at)
BEGIN SELECT RAISE(ABORT, 'a key is retired, never changed'); END;
CREATE TRIGGER receipt_keys_keep BEFORE DELETE ON receipt_keys
BEGIN SELECT RAISE(ABORT, 'keys are retired, never deleted'); END;

-- A receipt for each end of an attempt, written in the transaction that ends it. Runs that ended in earlier schemas have none.
CREATE TABLE receipts (
  run_id    TEXT    NOT NULL,
  attempt   INTEGER NOT NULL,
  key_id    TEXT    NOT NULL REFERENCES receipt_keys,
  statement TEXT    NOT NULL,                -- the bytes that are signed
  signature BLOB    NOT NULL CHECK (length(signature) = 64),
  PRIMARY KEY (run_id, attempt),
  FOREIGN KEY (run_id, attempt) REFERENCES attempts (run_id, n)
) STRICT;
CREATE TRIGGER receipts_at_the_end BEFORE INSERT ON receipts
WHEN NOT EXISTS (SELECT 1 FROM runs WHERE run_id = NEW.run_id AND attempt_n = NEW.attempt AND phase <> 'done')
BEGIN SELECT RAISE(ABORT, 'a receipt is made when its attempt ends, never later'); END;
CREATE TRIGGER receipts_fixed BEFORE UPDATE ON receipts
BEGIN SELECT RAISE(ABORT, 'receipts never change'); END;
CREATE TRIGGER receipts_keep BEFORE DELETE ON receipts
BEGIN SELECT RAISE(ABORT, 'receipts are never deleted'); END;
CREATE TRIGGER runs_receipt BEFORE UPDATE OF phase ON runs
WHEN NEW.phase = 'done' AND NOT EXISTS (SELECT 1 FROM receipts WHERE run_id = NEW.run_id AND attempt = NEW.attempt_n)
BEGIN SELECT RAISE(ABORT, 'a run ends with a receipt'); END;
