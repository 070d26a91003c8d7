-- What a ticket demands, who has spoken, and what became of it.

ALTER TABLE tickets ADD COLUMN actor        TEXT    NOT NULL DEFAULT '';
ALTER TABLE tickets ADD COLUMN demands      TEXT    NOT NULL DEFAULT '[]'; -- JSON
ALTER TABLE tickets ADD COLUMN votes        TEXT    NOT NULL DEFAULT '[]'; -- JSON, in the order they came
ALTER TABLE tickets ADD COLUMN unbound      TEXT    NOT NULL DEFAULT '[]'; -- JSON
ALTER TABLE tickets ADD COLUMN about        TEXT    NOT NULL DEFAULT '{}'; -- JSON: what people are told of the tool
ALTER TABLE tickets ADD COLUMN escalated_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tickets ADD COLUMN escalated_to TEXT    NOT NULL DEFAULT '[]'; -- JSON
ALTER TABLE tickets ADD COLUMN void_reason  TEXT    NOT NULL DEFAULT '';

-- What a principal has open, and what was refused to it lately.
CREATE INDEX tickets_of ON tickets (tenant, principal, state, decided_at);
