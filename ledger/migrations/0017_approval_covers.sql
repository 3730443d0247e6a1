-- What an approval covers beyond the arguments: who asks, the project, where the job goes, with which image. Requests older than this do not
-- say it, so they end here: the call asks again.
ALTER TABLE approvals ADD COLUMN principal_id TEXT NOT NULL DEFAULT '';
ALTER TABLE approvals ADD COLUMN project_id TEXT NOT NULL DEFAULT ''; -- '' for a call that concerns the whole site
ALTER TABLE approvals ADD COLUMN covers TEXT NOT NULL DEFAULT '{}';   -- canonical JSON
ALTER TABLE approvals ADD COLUMN replaces TEXT REFERENCES approvals;  -- an earlier request of the same call, which covered something else
ALTER TABLE approvals ADD COLUMN answered_by_id TEXT;
UPDATE approvals SET expires_at = requested_at WHERE status = 'pending';
UPDATE approvals SET uses_left = 0 WHERE uses_left > 0;

DROP INDEX approvals_binding;
CREATE INDEX approvals_binding ON approvals (principal_id, binding);
CREATE INDEX approvals_args ON approvals (principal_id, args_hash);
DROP TRIGGER approvals_answered;
CREATE TRIGGER approvals_answered BEFORE UPDATE ON approvals
WHEN OLD.status <> 'pending' AND (NEW.status, NEW.answered_by, NEW.answered_by_id, NEW.answered_at, NEW.expires_at)
  IS NOT (OLD.status, OLD.answered_by, OLD.answered_by_id, OLD.answered_at, OLD.expires_at)
  OR NEW.uses_left > OLD.uses_left AND OLD.status <> 'pending'
BEGIN SELECT RAISE(ABORT, 'an approval is answered once'); END;
CREATE TRIGGER approvals_fixed BEFORE UPDATE ON approvals
WHEN (NEW.approval_id, NEW.principal, NEW.principal_id, NEW.project_id, NEW.tool_id, NEW.tool_version, NEW.binding, NEW.covers, NEW.replaces, NEW.requested_at)
  IS NOT (OLD.approval_id, OLD.principal, OLD.principal_id, OLD.project_id, OLD.tool_id, OLD.tool_version, OLD.binding, OLD.covers, OLD.replaces, OLD.requested_at)
BEGIN SELECT RAISE(ABORT, 'what an approval covers never changes'); END;
CREATE TRIGGER approvals_keep BEFORE DELETE ON approvals
BEGIN SELECT RAISE(ABORT, 'approvals are never deleted'); END;
