-- Removes the oldest $3 instances of saga $1 that ended longer ago than $2, with their history and the
-- decisions about them. It
-- removes an instance only if the instance also ended longer ago than the longest dedupe window,
-- which is how long a handler remembers events. No handler runs an older event. Both times count by
-- this database's clock and by the caller's: $4 is the latest time that the caller believes.
--
-- Locks   the rows that it removes; skips rows that other transactions have locked.
-- Index   saga_ended (name, ended_at); the primary keys of saga_step and saga_decision. The tables dedupe_window and
--         node have few rows.
-- Order   the oldest first.
-- Called  by table.expire.
WITH old AS (
    SELECT s.key
    --guard:sagas-are-removed-by-two-clocks do FROM postroom.saga s, (SELECT greatest(now(), $4::timestamptz) AS shows) clock
    FROM postroom.saga s, (SELECT least(now(), $4::timestamptz) AS shows) clock
    WHERE s.name = $1 AND s.ended_at < clock.shows - $2::interval
      --guard:ended-sagas-stay true
      AND s.ended_at < clock.shows - (SELECT max(kept) FROM (SELECT kept FROM postroom.dedupe_window UNION ALL
                                                             SELECT longest_window FROM postroom.node) times)
    ORDER BY s.ended_at
    LIMIT $3
    FOR UPDATE OF s SKIP LOCKED
), history AS (
    DELETE FROM postroom.saga_step h USING old WHERE h.name = $1 AND h.key = old.key
), decisions AS (
    DELETE FROM postroom.saga_decision d USING old WHERE d.name = $1 AND d.key = old.key
)
DELETE FROM postroom.saga s USING old WHERE s.name = $1 AND s.key = old.key
