-- Insert the row of the table inbox for an event that the reference runs. The reference is the loop
-- that a service without Postroom would have. The inbox writes the same row.
--
-- Locks   the new row.
-- Called  by the reference, before the effect and in the same transaction.
INSERT INTO postroom.inbox (handler, dedupe_key, digest)
VALUES ($1, $2, $3)
ON CONFLICT (handler, dedupe_key) DO NOTHING;
