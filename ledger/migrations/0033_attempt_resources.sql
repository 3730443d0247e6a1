-- What an attempt has where a retry raised it: a plan's resources, JSON. NULL: what the run's params say.
ALTER TABLE attempts ADD COLUMN resources TEXT;
DROP VIEW attempt_costs;
CREATE VIEW attempt_costs AS SELECT a.run_id, a.n, r.project_id,
  CASE WHEN r.executed_as <> '' THEN 'unix:' || r.executed_as WHEN r.principal_id <> '' THEN r.principal_id ELSE r.principal END AS caller,
  date(a.created_at / 1000000, 'unixepoch') AS day,
  coalesce(a.resources ->> '$.cpus', p.params ->> '$.slurm.resources.cpus', p.params ->> '$.docker.resources.cpus', 0) AS cpus,
  coalesce(a.resources ->> '$.time_limit_seconds', p.params ->> '$.slurm.resources.time_limit_seconds',
    p.params ->> '$.docker.resources.time_limit_seconds', 0) AS seconds,
  coalesce((a.ended_at - a.started_at) / 1000000, CAST(a.usage ->> '$.elapsed_seconds' AS INTEGER), 0) AS ran, a.ending
  FROM attempts a JOIN runs r ON r.run_id = a.run_id LEFT JOIN param_sets p ON p.params_hash = r.params_hash
  WHERE r.site <> '(worker)';
