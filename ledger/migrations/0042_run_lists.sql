-- Lists of runs by state, by tool and by project, newest first, walk an index and cost what they show. Without them a list of few runs among a million reads
-- them all.
CREATE INDEX runs_state   ON runs (state, created_at, run_id);
CREATE INDEX runs_tool    ON runs (tool_id, created_at, run_id);
CREATE INDEX runs_project ON runs (project_id, created_at, run_id);
