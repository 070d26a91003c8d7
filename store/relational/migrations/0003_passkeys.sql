-- Approvers' passkeys, and the webhooks that tell of tickets and decide them.
-- Times are nanoseconds since 1970 (UTC); 0 means "not set".

CREATE TABLE passkeys (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL, -- credential id, base64url
    admin      TEXT    NOT NULL,
    label      TEXT    NOT NULL,
    rp_id      TEXT    NOT NULL, -- the name that it is bound to
    credential TEXT    NOT NULL, -- JSON: the public key and what is known of it
    counter    INTEGER NOT NULL, -- of signatures, as the authenticator counts; 0 where it does not
    created_at INTEGER NOT NULL,
    used_at    INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;

CREATE INDEX passkeys_admin ON passkeys (tenant, admin);

CREATE TABLE passkey_links (
    tenant     TEXT    NOT NULL,
    id         TEXT    NOT NULL, -- sha256 of the link's token, which is not kept
    kind       TEXT    NOT NULL CHECK (kind IN ('add', 'sign', 'confirm')),
    admin      TEXT    NOT NULL,
    login      TEXT    NOT NULL, -- sha256 of the password's hash then: a new password ends the link
    ticket     TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    label      TEXT    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('open', 'used')),
    ceremony   TEXT    NOT NULL, -- JSON of the challenge that is out, '' if none is
    tries      INTEGER NOT NULL,
    error      TEXT    NOT NULL, -- why the last try failed
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT;

CREATE INDEX passkey_links_expiry ON passkey_links (expires_at);

-- How far each webhook has looked for tickets that moved.
CREATE TABLE webhook_hooks (
    tenant   TEXT    NOT NULL,
    hook     TEXT    NOT NULL,
    swept_at INTEGER NOT NULL,
    PRIMARY KEY (tenant, hook)
) STRICT;

-- The outbox: what is to be sent, was sent, or was given up.
CREATE TABLE webhook_notices (
    tenant     TEXT    NOT NULL,
    hook       TEXT    NOT NULL,
    id         TEXT    NOT NULL, -- webhook-id: the same at every try
    type       TEXT    NOT NULL,
    ticket     TEXT    NOT NULL,
    body       BLOB    NOT NULL,
    state      TEXT    NOT NULL CHECK (state IN ('waiting', 'sent', 'dead')),
    tries      INTEGER NOT NULL,
    next_at    INTEGER NOT NULL, -- not before this
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    error      TEXT    NOT NULL,
    PRIMARY KEY (tenant, hook, id)
) STRICT;

CREATE INDEX webhook_notices_due ON webhook_notices (tenant, hook, state, next_at);
CREATE INDEX webhook_notices_age ON webhook_notices (state, updated_at);

-- Messages that came in: each id serves once.
CREATE TABLE webhook_seen (
    tenant TEXT    NOT NULL,
    hook   TEXT    NOT NULL,
    id     TEXT    NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, hook, id)
) STRICT;

CREATE INDEX webhook_seen_age ON webhook_seen (at);

CREATE INDEX tickets_moved ON tickets (updated_at);
