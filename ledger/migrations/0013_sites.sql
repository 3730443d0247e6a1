-- The site of a run. '' only between this migration and the first opening, which knows the sites and fills it in, see Ledger.fillSites.
ALTER TABLE runs ADD COLUMN site TEXT NOT NULL DEFAULT '';
DROP INDEX runs_open;
CREATE INDEX runs_open ON runs (site, phase, created_at) WHERE phase <> 'done';

CREATE TRIGGER runs_site BEFORE UPDATE OF site ON runs WHEN OLD.site <> '' OR NEW.site = ''
BEGIN SELECT RAISE(ABORT, 'a run stays on its site'); END;

-- Filling in the site of an older run is no revision of it: these two are about every other column.
DROP TRIGGER runs_terminal;
CREATE TRIGGER runs_terminal BEFORE UPDATE OF run_id, rev, tool_id, tool_name, tool_version, contract_version, pack_hash, policy_hash, params_hash, plan_hash, project_id, actor,
  state, phase, reason, detail, attempt_n, warnings, exit_code, created_at, updated_at, finished_at, cancel_at, cancel_reason, result_json, log_artifact_id, script_artifact_id ON runs
WHEN OLD.phase = 'done' AND (NEW.phase = 'done' OR NEW.attempt_n <> OLD.attempt_n + 1)
BEGIN SELECT RAISE(ABORT, 'a finished run changes only by a new attempt'); END;
DROP TRIGGER runs_rev;
CREATE TRIGGER runs_rev BEFORE UPDATE OF run_id, rev, tool_id, tool_name, tool_version, contract_version, pack_hash, policy_hash, params_hash, plan_hash, project_id, actor,
  state, phase, reason, detail, attempt_n, warnings, exit_code, created_at, updated_at, finished_at, cancel_at, cancel_reason, result_json, log_artifact_id, script_artifact_id ON runs
WHEN NEW.rev <> OLD.rev + 1
BEGIN SELECT RAISE(ABORT, 'a run changes by compare-and-swap'); END;
CREATE INDEX runs_siteless ON runs (run_id) WHERE site = '';
