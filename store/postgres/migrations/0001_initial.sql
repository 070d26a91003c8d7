-- A member of a JSON text, NULL where the text is not a JSON object: a payload
-- that was made unreadable must not make the others unfindable.
CREATE FUNCTION sallyport_member(payload TEXT, name TEXT) RETURNS TEXT
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
    RETURN payload::json ->> name;
EXCEPTION WHEN others THEN
    RETURN NULL;
END $$;

-- Against our own mistakes, not against an attacker (Verify is for that).
CREATE FUNCTION sallyport_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is only ever added to', TG_TABLE_NAME;
END $$;

CREATE TRIGGER audit_entries_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_entries
    FOR EACH STATEMENT EXECUTE FUNCTION sallyport_refuse();
CREATE TRIGGER audit_hashes_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_hashes
    FOR EACH STATEMENT EXECUTE FUNCTION sallyport_refuse();
