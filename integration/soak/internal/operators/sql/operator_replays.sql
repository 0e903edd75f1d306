-- Create four replays at handler $2, of events of source $1. One with $3 events is done. One with
-- $4 events stopped, because too many events failed. A small one with $5 events is done. The last
-- one has $6 dead events of cause $7; it is idle, and has released no event yet.
--
-- Locks   the new rows, and the $6 held rows.
-- Index   held_dead_cause (cause, dead_at, id).
-- Called  by office.history.
WITH made AS (
    INSERT INTO postroom.replay (created_at, actor, reason, filter, attempts, canary, stop_at, as_new, state, phase, items, released,
                              succeeded, failed, passed_over, stepped_at, ended_at)
    SELECT now() - age, actor, reason, jsonb_build_object('cause', encode($7::bytea, 'hex')), 1, 10, 0.1, false, state, phase, items,
           items - passed, items - passed - failed, failed, passed, now() - age + interval '5 minutes', now() - age + interval '5 minutes'
    FROM (VALUES (interval '50 hours', 'ann', 'the bank is back', 'done', 'ending', $3::int, 0, 0),
                 (interval '30 hours', 'bob', 'perhaps now', 'stopped', 'ending', $4, 2, $4 - 10),
                 (interval '10 hours', 'ann', 'mended in 1.4.2', 'done', 'ending', $5, 3, 0)) AS j (age, actor, reason, state, phase, items, failed, passed)
    RETURNING id, items, passed_over, failed, created_at
), items AS (
    INSERT INTO postroom.replay_event (replay, n, through, held, handler, source, event_id, dead_at, released_at, outcome, ended_at)
    SELECT id, n, n, 1000000000 + n, $2, $1, 'event-' || lpad((6 * (20 * n + id))::text, 10, '0'), created_at - interval '1 hour',
           CASE WHEN n <= items - passed_over THEN created_at + interval '1 minute' END,
           CASE WHEN n > items - passed_over THEN 'withdrawn' WHEN n <= failed THEN 'failed' ELSE 'succeeded' END, created_at + interval '2 minutes'
    FROM made CROSS JOIN LATERAL generate_series(1, items) n
), idle AS (
    INSERT INTO postroom.replay (created_at, actor, reason, filter, attempts, canary, stop_at, as_new, phase, items, stepped_at)
    SELECT now() - interval '5 hours', 'chris', 'a few of them', jsonb_build_object('cause', encode($7, 'hex')), 1, 10, 0.1, false, 'canary', $6,
           now() - interval '5 hours'
    FROM (SELECT count(*) FROM made) others -- the new replay comes after them
    RETURNING id
), waiting AS (
    UPDATE postroom.held SET replay = idle.id
    FROM idle
    WHERE held.id IN (SELECT id FROM postroom.held WHERE cause = $7 AND dead_at IS NOT NULL ORDER BY dead_at, id LIMIT $6)
    RETURNING held.*
)
INSERT INTO postroom.replay_event (replay, n, through, held, handler, source, event_id, dead_at)
SELECT replay, n, n, id, handler, source, event_id, dead_at
FROM (SELECT *, row_number() OVER (ORDER BY dead_at, id) AS n FROM waiting) w;
