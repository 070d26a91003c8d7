-- What all agents of one tenant do together, at every gateway.
CREATE TABLE tenant_rates (
    tenant  TEXT    NOT NULL PRIMARY KEY,
    idle_at INTEGER NOT NULL -- by the clock of the database
) STRICT;

CREATE TABLE tenant_calls (
    id     TEXT    NOT NULL PRIMARY KEY,
    tenant TEXT    NOT NULL,
    until  INTEGER NOT NULL -- it counts as in flight, unless its gateway gives another sign
) STRICT;

CREATE INDEX tenant_calls_of ON tenant_calls (tenant, until);
