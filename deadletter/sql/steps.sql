-- The steps of the event with dedupe key $2 at handler $1.
--
-- Locks   none.
-- Index   receipt's primary key.
-- Called  by reader.steps.
SELECT step, revision, key, unanswered, started_at, done_at, result
FROM postroom.receipt
WHERE handler = $1 AND dedupe_key = $2
ORDER BY started_at, step, revision;
