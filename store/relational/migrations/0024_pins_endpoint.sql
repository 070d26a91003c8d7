-- Where a server was when its tool was approved, so that another one of its name is not taken for it.
ALTER TABLE pins ADD COLUMN endpoint TEXT NOT NULL DEFAULT '';
