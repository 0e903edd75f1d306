-- Lock the events $1, and return the state of each. If another transaction has locked a row, that
-- transaction claims, settles or changes the event: the statement skips the row, and returns the
-- event as running. For an event that is no longer held, it returns gone.
--
-- The statement compares with clock_timestamp() and not with now(), because a process may have
-- claimed an event after the transaction began.
--
-- Locks   the held rows; skips those that are locked.
-- Index   held_pkey (id).
-- Called  by action.lock.
WITH locked AS MATERIALIZED (
    SELECT id, handler = 'outbox' AS outgoing,
           CASE WHEN dead_at IS NOT NULL THEN 'dead'
            WHEN next_at IS NULL THEN 'waiting'
            WHEN next_at <= clock_timestamp() THEN CASE WHEN handler = 'outbox' THEN 'running' ELSE 'due' END
            --guard:running-events-are-not-cancelled remove
            WHEN claimed_by IS NOT NULL THEN 'running'
            WHEN class IS NULL AND chain IS NULL THEN 'scheduled'
            ELSE 'retrying' END AS state
    FROM postroom.held
    WHERE id = ANY ($1::bigint[])
    ORDER BY id
    FOR UPDATE SKIP LOCKED
)
SELECT e.id, CASE WHEN locked.id IS NOT NULL THEN locked.state WHEN EXISTS (SELECT FROM postroom.held WHERE held.id = e.id) THEN 'running' ELSE 'gone' END, coalesce(locked.outgoing, false)
FROM pg_catalog.unnest($1::bigint[]) AS e (id)
LEFT JOIN locked ON locked.id = e.id;
