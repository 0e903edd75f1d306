-- Decide the event with dedupe key $2 and digest $3 for handler $1. No row
-- inserted: it is decided already.
--
-- Locks   the new row; waits for a transaction that is deciding the same event,
--         and then inserts where that one rolled back.
-- Index   inbox's primary key.
-- Called  by consumer.run, before the handler, in its transaction.
INSERT INTO postroom.inbox (handler, dedupe_key, digest)
VALUES ($1, $2, $3)
ON CONFLICT (handler, dedupe_key) DO NOTHING;
