-- Where the other gateways of the database reach one: HOST:PORT, "" if they do not.
ALTER TABLE writers ADD COLUMN address TEXT NOT NULL DEFAULT '';
