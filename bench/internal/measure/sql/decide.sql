-- Insert the inbox row of the reference, in the form in which the inbox writes it.
--
-- Locks   the new row.
-- Called  by the reference, before the effect, in its transaction.
INSERT INTO postroom.inbox (handler, dedupe_key, digest)
VALUES ($1, $2, $3)
ON CONFLICT (handler, dedupe_key) DO NOTHING;
