-- Why a call that failed did, as its caller was told it.
ALTER TABLE reservations ADD COLUMN reason BLOB;
