-- The gateways that are at work. What a writer without a row left executing has
-- no outcome that anybody will ever tell.
CREATE TABLE writers (
    id          TEXT    NOT NULL PRIMARY KEY, -- of one process
    log         TEXT    NOT NULL,             -- its audit log; one data folder, one log
    started_at  INTEGER NOT NULL,
    alive_until INTEGER NOT NULL              -- by the clock of the database
) STRICT;
