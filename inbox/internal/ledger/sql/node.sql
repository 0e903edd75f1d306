-- Record that process $1 lives, with name $2 and handlers $3. It keeps rows of inbox for $4
-- and relies on them for $5. $6 are its handlers that paused by themselves. Remove processes that were not seen for an hour. It returns the
-- database's clock, the identity of this Postroom, and the time from which on inbox has all
-- rows (NULL: none was removed yet).
--
-- Locks   the process's row, and the rows that are removed.
-- Index   the primary key; otherwise none, there are as many rows as processes.
-- Called  by Upkeep.Beat.
WITH forgotten AS (
    DELETE FROM postroom.node WHERE seen_at < now() - interval '1 hour' AND id <> $1
)
INSERT INTO postroom.node (id, name, handlers, ledger, age_gate, paused)
VALUES ($1, $2, $3, $4, $5, $6::jsonb)
ON CONFLICT (id) DO UPDATE SET seen_at = now(), paused = excluded.paused
RETURNING clock_timestamp(), (SELECT id::text FROM postroom.instance), (SELECT expired_before FROM postroom.sweep);
