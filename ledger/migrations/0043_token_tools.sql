-- The tools that a token names: a chat's list has them before the other tools of the domain. They are no right. JSON array of ids.
ALTER TABLE tokens ADD COLUMN tools TEXT NOT NULL DEFAULT '[]';
