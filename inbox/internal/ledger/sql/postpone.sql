-- Handler $1 returned postroom.SnoozeKey for events of some keys. Postpone the events of these keys
-- that are due and that no process has claimed. The statement looks only at the $5 events that have
-- been due for the longest, because a claim would find these first. Each array has one element for
-- each key:
--
-- $2 key   $3 the time from now until its first event is due   $4 the time from each event to the
-- next   $6 the time for which an event must have been due: an event that an operator has just
-- released is not postponed
--
-- The statement returns how many events of each key it postponed. The events have not run, so they
-- lose no attempt.
--
-- Locks   the postponed rows; skips rows that another process is claiming.
-- Index   held_due (handler, next_at, pos), held_pkey (id).
-- Called  by Claims.Postpone.
WITH front AS (
    SELECT id, key FROM postroom.held
    --guard:what-is-claimed-is-not-postponed 3 true
    WHERE handler = $1 AND next_at <= now() AND claimed_by IS NULL AND NOT solitary
    ORDER BY next_at
    LIMIT $5::int
), waits AS (
    SELECT held.id, held.key, held.next_at, k.first, k.pace
    FROM front
    JOIN unnest($2::text[], $3::interval[], $4::interval[], $6::interval[]) AS k (key, first, pace, since) ON k.key = front.key
    JOIN postroom.held ON held.id = front.id
    --guard:what-is-released-is-not-postponed 1.2 = @1
    --guard:what-is-claimed-is-not-postponed/2 2 true
    WHERE held.next_at <= now() - k.since AND held.claimed_by IS NULL
    FOR UPDATE OF held SKIP LOCKED
), postponed AS (
    UPDATE postroom.held
    SET next_at = now() + later.first + (later.nth - 1)::float8 * later.pace
    FROM (SELECT *, row_number() OVER (PARTITION BY key ORDER BY next_at, id) AS nth FROM waits) AS later
    WHERE held.id = later.id
    RETURNING held.key
)
SELECT key, count(*) FROM postponed GROUP BY key;
