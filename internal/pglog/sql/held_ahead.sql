-- The seqs above $1 that are held, or were discarded or cancelled: the lowest ones, at most $2. After a
-- crash the relay reads the log again from the recorded high on. It leaves out the events of these
-- seqs, because they are held already, or must not be published.
--
-- Locks   none.
-- Index   held_outgoing (pos), archive_outgoing (pos).
-- Order   by pos.
-- Called  by Term.Read, the first time.
SELECT pos
FROM (
    (SELECT pos FROM postroom.held WHERE handler = 'outbox' AND pos > $1 ORDER BY pos LIMIT $2)
    UNION ALL
    --guard:cancelled-events-after-a-crash 1 false
    (SELECT pos FROM postroom.archive WHERE handler = 'outbox' AND pos > $1 AND republish IS NULL ORDER BY pos LIMIT $2)
) both_tables
ORDER BY pos
LIMIT $2;
