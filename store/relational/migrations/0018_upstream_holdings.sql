-- What the gateway holds at the authorization servers of its upstreams: the issuer
-- that was confirmed, its registration as a client, grants with their tokens, and
-- logins that a human has begun. Bodies are sealed; see secret/vault.
CREATE TABLE upstream_holdings (
    tenant     TEXT    NOT NULL,
    server     TEXT    NOT NULL,
    kind       TEXT    NOT NULL CHECK (kind IN ('issuer', 'client', 'grant', 'login')),
    name       TEXT    NOT NULL, -- of a client its issuer, of a grant whom it is for, of a login the sha256 of its state
    body       BLOB    NOT NULL,
    version    INTEGER NOT NULL, -- grows with each change, and over a row that was deleted
    holder     TEXT    NOT NULL, -- the gateway that refreshes it now, '' if none does
    held_until INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, server, kind, name)
) STRICT;
