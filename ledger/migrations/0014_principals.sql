-- Who calls. An id is given once and means the same subject for ever. Keys, approvals, large answers and records are bound to it; the name
-- is for people. The default is the one place that makes ids.
CREATE TABLE principals (
  principal_id TEXT    NOT NULL PRIMARY KEY DEFAULT ('prn_' || hex(randomblob(13))) CHECK (principal_id GLOB 'prn_*'),
  method       TEXT    NOT NULL CHECK (method IN ('peer', 'token', 'oidc')),
  subject      TEXT    NOT NULL,             -- compared exactly: "UID NAME", a token's id, or "ISSUER SUBJECT"
  name         TEXT    NOT NULL,             -- as lists show it
  made_by      TEXT    REFERENCES principals, -- of a token: who created it. NULL for other methods, and for tokens older than this table
  former       TEXT    UNIQUE,               -- the name that keys, large answers and records older than this table have for this principal
  first_seen   INTEGER NOT NULL,
  UNIQUE (method, subject)
) STRICT;
CREATE TRIGGER principals_fixed BEFORE UPDATE ON principals
BEGIN SELECT RAISE(ABORT, 'a principal never changes'); END;
CREATE TRIGGER principals_keep BEFORE DELETE ON principals
BEGIN SELECT RAISE(ABORT, 'the id of a principal is never given twice'); END;

-- Each token is a principal. Until now tokens of one name shared their keys and answers: only a token that never had a namesake keeps them.
INSERT INTO principals (method, subject, name, former, first_seen)
SELECT 'token', token_id, 'token:' || name, iif(revoked_at IS NULL AND count(*) OVER (PARTITION BY name) = 1, 'token:' || name, NULL), created_at
FROM tokens;

-- Methods whose principals may still take over what is kept under their names. Users of this host can do so the first time the gateway
-- starts, because a name may belong to another user later. The name of an OpenID subject never changes hands.
CREATE TABLE former_names (method TEXT NOT NULL PRIMARY KEY, since INTEGER NOT NULL) STRICT;
INSERT INTO former_names SELECT column1, at FROM (VALUES ('peer'), ('oidc')), (SELECT max(at) AS at FROM tool_call_events) WHERE at IS NOT NULL;

-- '' in records older than this, whose hashes do not cover it.
ALTER TABLE tool_call_events ADD COLUMN principal_id TEXT NOT NULL DEFAULT '';
