-- What the newest request of each principal for a run calls its outputs where they are downloaded: {role: name}, JSON. No part of the run: requests with
-- equal bytes and other labels share it.
CREATE TABLE download_names (
  run_id       TEXT    NOT NULL REFERENCES runs,
  principal    TEXT    NOT NULL,
  principal_id TEXT    NOT NULL,
  names        TEXT    NOT NULL,
  asked_at     INTEGER NOT NULL,
  PRIMARY KEY (run_id, principal, principal_id)
) STRICT, WITHOUT ROWID;
