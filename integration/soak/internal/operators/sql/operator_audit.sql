-- Record $1 actions of five operators during the last 60 hours: the replays, one action that
-- discarded $4 events, and actions on single events of source $2 at handler $3.
--
-- Locks   the new rows.
-- Called  by office.history.
INSERT INTO postroom.audit (at, actor, action, reason, events, handler, source, event_id, replay, details)
SELECT *
FROM (
    SELECT created_at AS at, actor, 'replay', reason, items, NULL, NULL, NULL, id, jsonb_build_object('filter', filter)
    FROM postroom.replay
    UNION ALL
    SELECT now() - interval '20 hours', 'dora', 'discard', 'tests of ours that got through', $4::int, NULL, NULL, NULL, NULL, '{"filter": {"type": "soak.charged"}}'
    UNION ALL
    SELECT now() - interval '60 hours' * (n / $1::float8), (ARRAY['ann', 'bob', 'chris', 'dora', 'eve'])[1 + n % 5],
           (ARRAY['edit', 'resolve', 'reopen'])[1 + n % 3], 'by request ' || n, 1, $3, $2, 'event-' || lpad((6 * n)::text, 10, '0'), NULL, NULL
    FROM generate_series(1, $1::int - (SELECT count(*)::int FROM postroom.replay) - 1) n
) actions
ORDER BY at;
