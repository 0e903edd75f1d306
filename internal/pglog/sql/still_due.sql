-- The held events of $1 (seqs) that the relay must still publish: they were not cancelled, and are due or
-- wait behind an earlier event of their key. unlocked.sql has taken and released the locks before this
-- statement begins. So this statement sees every cancellation and every new time that was committed
-- before unlocked.sql got the lock.
--
-- A cancelled event is in held if schedule.sql moved it there and could not see the cancellation
-- yet. This statement deletes such an event from held.
--
-- "OFFSET 0" makes the planner look up each event. A plan that was made while the tables were
-- empty would read all of them.
--
-- Locks   the removed rows; skips those that are locked.
-- Index   archive_outgoing (pos), held_outgoing (pos).
-- Called  by Term.Read, with unlocked.sql before it.
WITH cancelled AS MATERIALIZED (
    SELECT e.seq FROM unnest($1::bigint[]) AS e (seq)
    --guard:cancelled-events-leave-held false
    WHERE EXISTS (SELECT FROM postroom.archive a WHERE a.handler = 'outbox' AND a.pos = e.seq AND a.republish IS NULL OFFSET 0)
), removed AS (
    DELETE FROM postroom.held
    WHERE id IN (SELECT h.id FROM cancelled JOIN postroom.held h ON h.handler = 'outbox' AND h.pos = cancelled.seq AND h.republish IS NULL
                 FOR UPDATE OF h SKIP LOCKED)
)
SELECT e.seq
FROM unnest($1::bigint[]) AS e (seq)
WHERE EXISTS (SELECT FROM postroom.held h
              WHERE h.handler = 'outbox' AND h.pos = e.seq AND h.dead_at IS NULL AND (h.next_at IS NULL OR h.next_at <= now())
                AND (h.republish IS NOT NULL OR e.seq NOT IN (SELECT seq FROM cancelled)) OFFSET 0);
