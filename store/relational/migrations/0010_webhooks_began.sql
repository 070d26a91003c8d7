-- Since when a webhook is there: it is told of no ticket that is older. 0: of all.
ALTER TABLE webhook_hooks ADD COLUMN began_at INTEGER NOT NULL DEFAULT 0;
