-- The semantic version of a pinned definition: an approval of a change raises it.
ALTER TABLE pins ADD COLUMN version TEXT NOT NULL DEFAULT '1.0.0';
