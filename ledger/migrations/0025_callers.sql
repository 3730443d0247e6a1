-- Whose call made a run that is older than runs.principal, as far as the record of its submit says so: the first call with an effect that names the run.
DROP TRIGGER runs_principal;
UPDATE runs SET principal = named.principal, principal_id = named.principal_id FROM (
  SELECT j.value AS run_id, e.principal, e.principal_id, min(e.seq) FROM tool_call_events e, json_each(e.event, '$.resources_touched.workspace_ids') j
  WHERE e.chain = 'effects' AND e.principal_id <> '' GROUP BY j.value) named
WHERE runs.run_id = named.run_id AND runs.principal = '' AND runs.principal_id = '';
CREATE TRIGGER runs_principal BEFORE UPDATE OF principal, principal_id ON runs
BEGIN SELECT RAISE(ABORT, 'who made a run never changes'); END;

INSERT INTO spent SELECT 'caller', caller, day, count(*), sum(cpus * iif(ending = '', seconds, max(0, ran))) FROM attempt_costs WHERE caller <> ''
  GROUP BY caller, day ON CONFLICT DO UPDATE SET runs = excluded.runs, cpu_seconds = excluded.cpu_seconds;
