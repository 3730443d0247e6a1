-- What each project and each caller had of the site, by the day (UTC) on which an attempt was opened: how many attempts, and CPU seconds. An attempt
-- reserves its CPUs for its time limit; once it has ended, what counts is the time its job ran. Kept by the triggers alone.
CREATE TABLE spent (
  scope       TEXT    NOT NULL CHECK (scope IN ('project', 'caller')),
  name        TEXT    NOT NULL,                -- project id; id of a principal, or its name where no ledger gave an id
  day         TEXT    NOT NULL,                -- 2026-11-22
  runs        INTEGER NOT NULL CHECK (runs >= 0),
  cpu_seconds INTEGER NOT NULL,
  PRIMARY KEY (scope, name, day)
) STRICT, WITHOUT ROWID;

CREATE VIEW attempt_costs AS SELECT a.run_id, a.n, r.project_id, iif(r.principal_id <> '', r.principal_id, r.principal) AS caller,
  date(a.created_at / 1000000, 'unixepoch') AS day,
  coalesce(p.params ->> '$.slurm.resources.cpus', p.params ->> '$.docker.resources.cpus', 0) AS cpus,
  coalesce(p.params ->> '$.slurm.resources.time_limit_seconds', p.params ->> '$.docker.resources.time_limit_seconds', 0) AS seconds,
  coalesce((a.ended_at - a.started_at) / 1000000, CAST(a.usage ->> '$.elapsed_seconds' AS INTEGER), 0) AS ran, a.ending
  FROM attempts a JOIN runs r ON r.run_id = a.run_id LEFT JOIN param_sets p ON p.params_hash = r.params_hash;

INSERT INTO spent SELECT 'project', project_id, day, count(*), sum(cpus * iif(ending = '', seconds, max(0, ran))) FROM attempt_costs GROUP BY project_id, day;
INSERT INTO spent SELECT 'caller', caller, day, count(*), sum(cpus * iif(ending = '', seconds, max(0, ran))) FROM attempt_costs WHERE caller <> ''
  GROUP BY caller, day;

CREATE TRIGGER attempts_reserve AFTER INSERT ON attempts
BEGIN
  INSERT INTO spent SELECT 'project', project_id, day, 1, cpus * seconds FROM attempt_costs WHERE run_id = NEW.run_id AND n = NEW.n
    ON CONFLICT DO UPDATE SET runs = runs + 1, cpu_seconds = cpu_seconds + excluded.cpu_seconds;
  INSERT INTO spent SELECT 'caller', caller, day, 1, cpus * seconds FROM attempt_costs WHERE run_id = NEW.run_id AND n = NEW.n AND caller <> ''
    ON CONFLICT DO UPDATE SET runs = runs + 1, cpu_seconds = cpu_seconds + excluded.cpu_seconds;
END;
CREATE TRIGGER attempts_settle AFTER UPDATE OF ending ON attempts WHEN OLD.ending = '' AND NEW.ending <> ''
BEGIN
  UPDATE spent SET cpu_seconds = spent.cpu_seconds + c.cpus * (max(0, c.ran) - c.seconds) FROM attempt_costs c
    WHERE c.run_id = NEW.run_id AND c.n = NEW.n AND spent.day = c.day
      AND (spent.scope = 'project' AND spent.name = c.project_id OR spent.scope = 'caller' AND spent.name = c.caller);
END;
