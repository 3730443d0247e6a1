-- The record of every tool call, and what binds calls to each other. Times as in 0001.

-- Two chains. 'effects': calls that reached a tool which writes or executes; never deleted. 'looks': all others; the oldest may be
-- dropped, up to the horizon. hash = SHA-256(prev_hash + canonical {at, chain, event, principal, seq}).
CREATE TABLE call_chains (
  chain        TEXT    NOT NULL PRIMARY KEY CHECK (chain IN ('effects', 'looks')),
  seq          INTEGER NOT NULL,             -- of the newest
  hash         TEXT    NOT NULL,             -- of the newest
  horizon_seq  INTEGER NOT NULL,             -- everything up to here was dropped
  horizon_hash TEXT    NOT NULL              -- of the last one dropped
) STRICT;
INSERT INTO call_chains VALUES
  ('effects', 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000', 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000'),
  ('looks',   0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000', 0, 'sha256:0000000000000000000000000000000000000000000000000000000000000000');
CREATE TRIGGER call_chains_keep BEFORE DELETE ON call_chains
BEGIN SELECT RAISE(ABORT, 'the chains of calls are never deleted'); END;
CREATE TRIGGER call_chains_grow BEFORE UPDATE ON call_chains
WHEN NEW.seq < OLD.seq OR NEW.horizon_seq < OLD.horizon_seq OR NEW.horizon_seq > NEW.seq OR (NEW.chain = 'effects' AND NEW.horizon_seq <> 0)
BEGIN SELECT RAISE(ABORT, 'a chain of calls only grows'); END;

CREATE TABLE tool_call_events (
  chain        TEXT    NOT NULL REFERENCES call_chains,
  seq          INTEGER NOT NULL CHECK (seq >= 1),
  at           INTEGER NOT NULL,
  tool_call_id TEXT    NOT NULL,
  tool_id      TEXT    NOT NULL,
  principal    TEXT    NOT NULL,
  ok           INTEGER NOT NULL CHECK (ok IN (0, 1)),
  event        TEXT    NOT NULL,             -- ToolCallEvent, canonical JSON
  prev_hash    TEXT    NOT NULL,
  hash         TEXT    NOT NULL,
  PRIMARY KEY (chain, seq)
) STRICT;
CREATE INDEX tool_call_events_call ON tool_call_events (tool_call_id);
CREATE INDEX tool_call_events_at   ON tool_call_events (at);
CREATE TRIGGER tool_call_events_fixed BEFORE UPDATE ON tool_call_events
BEGIN SELECT RAISE(ABORT, 'events never change'); END;
CREATE TRIGGER tool_call_events_keep BEFORE DELETE ON tool_call_events
WHEN OLD.seq > (SELECT horizon_seq FROM call_chains c WHERE c.chain = OLD.chain)
BEGIN SELECT RAISE(ABORT, 'events before the horizon only are dropped'); END;

-- Arguments and results, redacted; raw ones are never kept (HTC-09).
CREATE TABLE tool_payloads (
  chain            TEXT    NOT NULL,
  seq              INTEGER NOT NULL,
  tool_call_id     TEXT    NOT NULL,
  kind             TEXT    NOT NULL CHECK (kind IN ('args', 'result')),
  payload_redacted TEXT    NOT NULL,
  payload_sha256   TEXT    NOT NULL CHECK (length(payload_sha256) = 64),
  created_at       INTEGER NOT NULL,
  PRIMARY KEY (chain, seq, kind),
  FOREIGN KEY (chain, seq) REFERENCES tool_call_events (chain, seq)
) STRICT;

-- Keys never expire. outcome is NULL while the call is under way, and after one that may be tried again.
CREATE TABLE idempotency_keys (
  principal    TEXT    NOT NULL,
  key_hash     TEXT    NOT NULL CHECK (length(key_hash) = 64),
  tool_id      TEXT    NOT NULL,
  binding      TEXT    NOT NULL CHECK (length(binding) = 64),
  tool_call_id TEXT    NOT NULL,
  approval_id  TEXT    NOT NULL,             -- '' for none
  outcome      TEXT,
  created_at   INTEGER NOT NULL,
  settled_at   INTEGER,
  PRIMARY KEY (principal, key_hash),
  CHECK ((outcome IS NULL) = (settled_at IS NULL))
) STRICT;
CREATE TRIGGER idempotency_keys_fixed BEFORE UPDATE ON idempotency_keys
WHEN OLD.outcome IS NOT NULL OR (NEW.principal, NEW.key_hash, NEW.tool_id, NEW.binding) IS NOT (OLD.principal, OLD.key_hash, OLD.tool_id, OLD.binding)
BEGIN SELECT RAISE(ABORT, 'an idempotency key stands for one call and one outcome'); END;
CREATE TRIGGER idempotency_keys_keep BEFORE DELETE ON idempotency_keys
BEGIN SELECT RAISE(ABORT, 'idempotency keys never expire'); END;

CREATE TABLE approvals (
  approval_id      TEXT    NOT NULL PRIMARY KEY CHECK (approval_id GLOB 'apr_*'),
  principal        TEXT    NOT NULL,         -- who asks
  tool_id          TEXT    NOT NULL,
  tool_version     TEXT    NOT NULL,
  binding          TEXT    NOT NULL CHECK (length(binding) = 64),
  args_hash        TEXT    NOT NULL CHECK (length(args_hash) = 64),
  payload_redacted TEXT    NOT NULL,
  status           TEXT    NOT NULL CHECK (status IN ('pending', 'approved', 'denied')),
  requested_at     INTEGER NOT NULL,
  expires_at       INTEGER NOT NULL,         -- of the question while pending, then of the answer
  uses_left        INTEGER NOT NULL CHECK (uses_left >= 0),
  answered_by      TEXT,
  answered_at      INTEGER,
  reason           TEXT,
  CHECK ((status = 'pending') = (answered_at IS NULL))
) STRICT;
CREATE INDEX approvals_binding ON approvals (principal, binding);
CREATE INDEX approvals_status  ON approvals (status, requested_at);
CREATE TRIGGER approvals_answered BEFORE UPDATE ON approvals
WHEN OLD.status <> 'pending' AND (NEW.status, NEW.answered_by, NEW.answered_at, NEW.expires_at) IS NOT (OLD.status, OLD.answered_by, OLD.answered_at, OLD.expires_at)
BEGIN SELECT RAISE(ABORT, 'an approval is answered once'); END;

-- Bearer tokens. The secret itself is shown once and never stored.
CREATE TABLE tokens (
  token_id      TEXT    NOT NULL PRIMARY KEY CHECK (token_id GLOB 'tok_*'),
  name          TEXT    NOT NULL,            -- whom it stands for: the principal is token:<name>
  secret_sha256 TEXT    NOT NULL CHECK (length(secret_sha256) = 64),
  capabilities  TEXT    NOT NULL,            -- JSON array
  projects      TEXT    NOT NULL,            -- JSON array of project ids, or "*"
  accounts      TEXT    NOT NULL,            -- JSON object, project id or "*" to Slurm account
  created_by    TEXT    NOT NULL,
  created_at    INTEGER NOT NULL,
  expires_at    INTEGER NOT NULL,
  revoked_at    INTEGER,
  revoked_by    TEXT
) STRICT;
CREATE TRIGGER tokens_fixed BEFORE UPDATE ON tokens
WHEN OLD.revoked_at IS NOT NULL OR (NEW.token_id, NEW.name, NEW.secret_sha256, NEW.capabilities, NEW.projects, NEW.accounts, NEW.created_by, NEW.created_at, NEW.expires_at)
  IS NOT (OLD.token_id, OLD.name, OLD.secret_sha256, OLD.capabilities, OLD.projects, OLD.accounts, OLD.created_by, OLD.created_at, OLD.expires_at)
BEGIN SELECT RAISE(ABORT, 'a token is revoked, never changed'); END;
CREATE TRIGGER tokens_keep BEFORE DELETE ON tokens
BEGIN SELECT RAISE(ABORT, 'tokens are revoked, never deleted'); END;

-- What binds keys and approvals to payloads on this ledger alone.
CREATE TABLE gate_key (
  id  INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  key BLOB    NOT NULL CHECK (length(key) = 32)
) STRICT;
INSERT INTO gate_key VALUES (1, randomblob(32));
