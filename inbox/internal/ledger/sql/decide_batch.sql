-- Decide the events with dedupe keys $2 and digests $3 for handler $1, and return the key of each
-- event that was not decided yet, with the id of the transaction. The caller sorts the keys, so
-- that two batches cannot deadlock. The timeouts are those of decide.sql.
--
-- Locks   the new rows; waits for transactions that are deciding the same events.
-- Index   inbox's primary key.
-- Called  by Handler.DecideBatch, after BEGIN, in the same round trip.
INSERT INTO postroom.inbox (handler, dedupe_key, digest)
SELECT $1::text, e.key, e.digest
FROM unnest($2::text[], $3::bytea[]) AS e (key, digest)
WHERE (SELECT set_config('lock_timeout', '5s', true) || set_config('idle_in_transaction_session_timeout', $4::text, true) <> '')
ON CONFLICT (handler, dedupe_key) DO NOTHING
RETURNING dedupe_key, pg_current_xact_id()::text;
