-- Removes the oldest $3 instances of saga $1 that ended longer ago than $2, with their history. It
-- removes an instance only if the instance also ended longer ago than the longest dedupe window,
-- which is how long a handler remembers events. No handler runs an older event.
--
-- Locks   the rows that it removes; skips rows that other transactions have locked.
-- Index   saga_ended (name, ended_at); the primary key of saga_step. The tables dedupe_window and
--         node have few rows.
-- Order   the oldest first.
-- Called  by table.expire.
WITH old AS (
    SELECT s.key
    FROM postroom.saga s
    WHERE s.name = $1 AND s.ended_at < now() - $2::interval
      --guard:ended-sagas-stay true
      AND s.ended_at < now() - (SELECT max(kept) FROM (SELECT kept FROM postroom.dedupe_window UNION ALL
                                                       SELECT longest_window FROM postroom.node) times)
    ORDER BY s.ended_at
    LIMIT $3
    FOR UPDATE SKIP LOCKED
), history AS (
    DELETE FROM postroom.saga_step h USING old WHERE h.name = $1 AND h.key = old.key
)
DELETE FROM postroom.saga s USING old WHERE s.name = $1 AND s.key = old.key
