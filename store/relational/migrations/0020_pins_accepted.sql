-- What there was to be wary of in a definition when it was approved: one remark a
-- line. It is not shown again.
ALTER TABLE pins ADD COLUMN accepted TEXT NOT NULL DEFAULT '';
