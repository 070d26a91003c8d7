-- Who has read what strangers wrote, and until when that counts.
CREATE TABLE taints (
    tenant    TEXT    NOT NULL,
    principal TEXT    NOT NULL,
    tool      TEXT    NOT NULL,
    call_id   TEXT    NOT NULL,
    reason    TEXT    NOT NULL,
    at        INTEGER NOT NULL,
    until     INTEGER NOT NULL,
    PRIMARY KEY (tenant, principal)
) STRICT;
