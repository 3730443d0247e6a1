-- Bytes that passed every check of a type, because the pack of a run asks for it (inputs[].verify). A failure is not recorded.
CREATE TABLE verified (
  sha256      TEXT    NOT NULL,
  type        TEXT    NOT NULL,
  verified_at INTEGER NOT NULL,
  PRIMARY KEY (sha256, type)
) STRICT, WITHOUT ROWID;
