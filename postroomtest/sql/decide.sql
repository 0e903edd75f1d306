-- Record that handler $1 has decided the event with dedupe key $2 and digest $3, as an inbox does.
-- It returns the id of the transaction. If it returns no row, the event was decided earlier.
--
-- Locks   the new row; waits for a transaction that is deciding the same event.
-- Index   inbox's primary key.
-- Called  by deliver, at the beginning of its transaction.
INSERT INTO postroom.inbox (handler, dedupe_key, digest)
VALUES ($1, $2, $3)
ON CONFLICT (handler, dedupe_key) DO NOTHING
RETURNING pg_current_xact_id()::text;
