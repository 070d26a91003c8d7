-- How many calls of one agent are open, and which of its outputs is the oldest.
CREATE INDEX reservations_of ON reservations (tenant, principal, state);
CREATE INDEX reservations_kept ON reservations (tenant, principal, updated_at) WHERE output IS NOT NULL;

-- Bytes of outputs that are kept for one agent.
CREATE TABLE kept_outputs (
    tenant    TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    bytes     INTEGER NOT NULL,
    PRIMARY KEY (tenant, principal)
) STRICT;

INSERT INTO kept_outputs (tenant, principal, bytes)
    SELECT tenant, principal, SUM(length(output)) FROM reservations WHERE output IS NOT NULL GROUP BY tenant, principal;

-- Money that calls have moved, or may have moved.
CREATE TABLE amounts (
    tenant    TEXT    NOT NULL,
    call_id   TEXT    NOT NULL,
    n         INTEGER NOT NULL,
    principal TEXT    NOT NULL,
    tool      TEXT    NOT NULL,
    currency  TEXT    NOT NULL,
    recipient TEXT    NOT NULL, -- sha256 hex, '' if there is none
    value     TEXT    NOT NULL, -- a decimal, as it was written
    at        INTEGER NOT NULL,
    PRIMARY KEY (tenant, call_id, n)
) STRICT;

CREATE INDEX amounts_at ON amounts (tenant, at);
CREATE INDEX amounts_of ON amounts (tenant, principal, at);

-- Calls counted towards quotas, one row for each quota and agent.
CREATE TABLE quotas (
    tenant TEXT    NOT NULL,
    name   TEXT    NOT NULL,
    starts INTEGER NOT NULL, -- of the span that n counts
    n      INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;

-- The latest call without a key of each kind, where identical ones count as one.
CREATE TABLE twins (
    tenant      TEXT    NOT NULL,
    principal   TEXT    NOT NULL,
    tool        TEXT    NOT NULL,
    fingerprint TEXT    NOT NULL,
    key         TEXT    NOT NULL,
    at          INTEGER NOT NULL,
    PRIMARY KEY (tenant, principal, tool, fingerprint)
) STRICT;
