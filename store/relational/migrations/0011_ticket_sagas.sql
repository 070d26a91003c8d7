-- 1: whoever opened the ticket put the ad-hoc saga of its call, if it has one, into
-- the binding. Older programs did not.
ALTER TABLE tickets ADD COLUMN notes_saga INTEGER NOT NULL DEFAULT 0;
