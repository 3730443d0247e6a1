-- Where an attempt goes, with what the site added to what was asked for: a plan's placement, JSON. NULL where the run's params name it all.
ALTER TABLE attempts ADD COLUMN placement TEXT;

-- Policies that runs were made under when canonical params had their previous form, and a policy the import roots.
ALTER TABLE policies ADD COLUMN previous INTEGER NOT NULL DEFAULT 0 CHECK (previous IN (0, 1));
UPDATE policies SET previous = 1;
