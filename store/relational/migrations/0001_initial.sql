-- Times are nanoseconds since 1970 (UTC); 0 means "not set".
-- Texts that must stay byte-exact (arguments, outputs, definitions) are BLOBs.

CREATE TABLE reservations (
    tenant      TEXT    NOT NULL,
    principal   TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    fingerprint TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('reserved', 'awaiting_approval', 'executing', 'done', 'failed', 'unknown')),
    call_id     TEXT    NOT NULL,
    ticket      TEXT    NOT NULL DEFAULT '',
    fence       INTEGER NOT NULL DEFAULT 0,
    lease       INTEGER NOT NULL DEFAULT 0,
    writer      TEXT    NOT NULL DEFAULT '',
    output      BLOB,
    is_error    INTEGER NOT NULL DEFAULT 0,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, principal, tool, key)
) STRICT;

CREATE INDEX reservations_open ON reservations (state, updated_at);

CREATE TABLE tickets (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    call_id    TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    principal  TEXT    NOT NULL,
    tool       TEXT    NOT NULL,
    binding    TEXT    NOT NULL, -- JSON without the arguments
    args       BLOB    NOT NULL, -- canonical; the bytes that were approved are the bytes that run
    hash       TEXT    NOT NULL,
    risk       TEXT    NOT NULL,
    policies   TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('pending', 'approved', 'rejected', 'expired', 'withdrawn', 'consumed', 'void')),
    created_at INTEGER NOT NULL,
    decide_by  INTEGER NOT NULL,
    run_by     INTEGER NOT NULL DEFAULT 0,
    decided_by TEXT    NOT NULL DEFAULT '',
    decided_at INTEGER NOT NULL DEFAULT 0,
    reason     TEXT    NOT NULL DEFAULT '',
    trace      TEXT    NOT NULL DEFAULT '',
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;

CREATE INDEX tickets_open ON tickets (state, updated_at);

CREATE TABLE agents (
    tenant      TEXT    NOT NULL,
    id          TEXT    NOT NULL,
    roles       TEXT    NOT NULL, -- JSON
    secret_hash TEXT    NOT NULL,
    state       TEXT    NOT NULL CHECK (state IN ('active', 'suspended', 'revoked')),
    source      TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    not_before  INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant, id)
) STRICT;

CREATE TABLE admins (
    tenant        TEXT    NOT NULL,
    name          TEXT    NOT NULL,
    groups        TEXT    NOT NULL, -- JSON
    password_hash TEXT    NOT NULL,
    created_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

CREATE TABLE pins (
    tenant      TEXT    NOT NULL,
    server      TEXT    NOT NULL,
    name        TEXT    NOT NULL,
    digest      TEXT    NOT NULL,
    definition  BLOB    NOT NULL,
    status      TEXT    NOT NULL,
    approved_by TEXT    NOT NULL DEFAULT '',
    approved_at INTEGER NOT NULL DEFAULT 0,
    updated_at  INTEGER NOT NULL,
    PRIMARY KEY (tenant, server, name)
) STRICT;

CREATE TABLE servers (
    tenant     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    config     BLOB    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

CREATE TABLE secrets (
    tenant     TEXT    NOT NULL,
    name       TEXT    NOT NULL,
    ciphertext BLOB    NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

-- The audit log. A log belongs to a writer and spans the tenants of its
-- gateway; each entry carries its tenant.
CREATE TABLE audit_logs (
    id     INTEGER PRIMARY KEY,
    writer TEXT    NOT NULL UNIQUE,
    size   INTEGER NOT NULL,
    head   BLOB    NOT NULL -- signed note for this size
) STRICT;

CREATE TABLE audit_entries (
    log        INTEGER NOT NULL REFERENCES audit_logs (id),
    seq        INTEGER NOT NULL,
    tenant     TEXT    NOT NULL,
    time       INTEGER NOT NULL,
    kind       TEXT    NOT NULL,
    call_id    TEXT    NOT NULL,
    commitment BLOB    NOT NULL,
    PRIMARY KEY (log, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX audit_entries_call ON audit_entries (call_id) WHERE call_id <> '';
CREATE INDEX audit_entries_time ON audit_entries (time);

CREATE TABLE audit_payloads (
    log     INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    tenant  TEXT    NOT NULL,
    salt    BLOB,             -- NULL once erased
    payload TEXT,             -- JSON, NULL once erased
    erased  INTEGER NOT NULL DEFAULT 0, -- sequence of the entry that records the erasure
    PRIMARY KEY (log, seq),
    FOREIGN KEY (log, seq) REFERENCES audit_entries (log, seq)
) STRICT;

CREATE TABLE audit_hashes (
    log  INTEGER NOT NULL REFERENCES audit_logs (id),
    idx  INTEGER NOT NULL,
    hash BLOB    NOT NULL,
    PRIMARY KEY (log, idx)
) STRICT, WITHOUT ROWID;
