-- Removes two instances of saga $1 that ended longer ago than $2, with their history, if the inbox
-- has forgotten the events of that time, too. Each Begin calls it, so that more are removed than
-- are begun.
--
-- Locks   the rows that it removes; passes over those that others have locked.
-- Index   saga_ended (name, ended_at); of saga_step the primary key.
-- Order   the oldest first.
-- Called  by table.expire.
WITH old AS (
    SELECT s.key
    FROM postroom.saga s
    WHERE s.name = $1 AND s.ended_at < now() - $2::interval
      AND s.ended_at < (SELECT expired_before FROM postroom.sweep)
    ORDER BY s.ended_at
    LIMIT 2
    FOR UPDATE SKIP LOCKED
), history AS (
    DELETE FROM postroom.saga_step h USING old WHERE h.name = $1 AND h.key = old.key
)
DELETE FROM postroom.saga s USING old WHERE s.name = $1 AND s.key = old.key
