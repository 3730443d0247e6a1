-- Where a call came from. '' in records older than this; the hash covers what is not ''.
ALTER TABLE tool_call_events ADD COLUMN face TEXT NOT NULL DEFAULT '';    -- shell, socket, http or mcp
ALTER TABLE tool_call_events ADD COLUMN address TEXT NOT NULL DEFAULT ''; -- an IP address, or uid:1001 pid:4711

-- Which runs a call is about: those its arguments name, and those that an effect made. It goes with the record.
CREATE TABLE call_about (
  chain  TEXT    NOT NULL,
  seq    INTEGER NOT NULL,
  run_id TEXT    NOT NULL,
  PRIMARY KEY (chain, seq, run_id),
  FOREIGN KEY (chain, seq) REFERENCES tool_call_events (chain, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX call_about_run ON call_about (run_id);
-- Older records name all runs of arguments and answers together: what names more than two is a list of others' runs.
INSERT OR IGNORE INTO call_about SELECT e.chain, e.seq, t.value
FROM tool_call_events e, json_each(e.event, '$.resources_touched.workspace_ids') t
WHERE json_array_length(e.event, '$.resources_touched.workspace_ids') <= 2 AND t.value GLOB 'run_*';
