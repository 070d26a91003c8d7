-- doc is the JSON of the saga, or step, without what has a column of its own.
CREATE TABLE sagas (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    principal  TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('open', 'running', 'awaiting_approval', 'paused', 'parked', 'compensating',
                                                 'succeeded', 'compensated', 'compensation_failed', 'cancelled')),
    doc        TEXT    NOT NULL,
    wake_at    INTEGER NOT NULL DEFAULT 0, -- when a gateway must look at it; 0: when somebody acts
    revision   INTEGER NOT NULL,
    fence      INTEGER NOT NULL DEFAULT 0,
    owner      TEXT    NOT NULL DEFAULT '',
    lease      INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;

CREATE INDEX sagas_due ON sagas (wake_at) WHERE wake_at > 0;
CREATE INDEX sagas_state ON sagas (state, updated_at);

-- The keys are those of the last attempts; reservations under them are kept as
-- long as the saga is not over.
CREATE TABLE saga_steps (
    tenant   TEXT    NOT NULL,
    saga     TEXT    NOT NULL,
    idx      INTEGER NOT NULL,
    key      TEXT    NOT NULL DEFAULT '',
    undo_key TEXT    NOT NULL DEFAULT '',
    doc      TEXT    NOT NULL,
    result   BLOB,
    PRIMARY KEY (tenant, saga, idx),
    FOREIGN KEY (tenant, saga) REFERENCES sagas (tenant, id)
) STRICT;

CREATE INDEX saga_steps_key ON saga_steps (tenant, key) WHERE key <> '';
CREATE INDEX saga_steps_undo_key ON saga_steps (tenant, undo_key) WHERE undo_key <> '';
