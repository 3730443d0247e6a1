-- Listing and removal of artifacts.

-- The times at which artifacts were registered are all different and grow, so that "created up to then" names a set that stays the same (ARC-05).
CREATE INDEX artifacts_created ON artifacts (created_at, artifact_id);
