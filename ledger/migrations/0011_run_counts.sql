-- How many runs there are, so that a list can say it at once. Kept by the triggers alone.
CREATE TABLE run_counts (
  project_id TEXT    NOT NULL,
  tool_id    TEXT    NOT NULL,
  state      TEXT    NOT NULL,
  n          INTEGER NOT NULL CHECK (n >= 0),
  PRIMARY KEY (project_id, tool_id, state)
) STRICT, WITHOUT ROWID;
INSERT INTO run_counts SELECT project_id, tool_id, state, count(*) FROM runs GROUP BY project_id, tool_id, state;
CREATE TRIGGER runs_count_new AFTER INSERT ON runs
BEGIN
  INSERT INTO run_counts VALUES (NEW.project_id, NEW.tool_id, NEW.state, 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
CREATE TRIGGER runs_count_moved AFTER UPDATE OF state ON runs WHEN OLD.state <> NEW.state
BEGIN
  UPDATE run_counts SET n = n - 1 WHERE project_id = OLD.project_id AND tool_id = OLD.tool_id AND state = OLD.state;
  INSERT INTO run_counts VALUES (NEW.project_id, NEW.tool_id, NEW.state, 1) ON CONFLICT DO UPDATE SET n = n + 1;
END;
