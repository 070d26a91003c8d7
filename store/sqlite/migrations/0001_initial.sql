-- Against our own mistakes, not against an attacker (Verify is for that).
CREATE TRIGGER audit_entries_append_only BEFORE UPDATE ON audit_entries
BEGIN SELECT RAISE(ABORT, 'audit entries are never changed'); END;
CREATE TRIGGER audit_entries_kept BEFORE DELETE ON audit_entries
BEGIN SELECT RAISE(ABORT, 'audit entries are never deleted'); END;
CREATE TRIGGER audit_hashes_append_only BEFORE UPDATE ON audit_hashes
BEGIN SELECT RAISE(ABORT, 'audit hashes are never changed'); END;
CREATE TRIGGER audit_hashes_kept BEFORE DELETE ON audit_hashes
BEGIN SELECT RAISE(ABORT, 'audit hashes are never deleted'); END;
