-- The time of the oldest row of each table whose primary key rises with time, or that has an index
-- by time. To find this row, the server also reads the index entries of deleted rows before it. If
-- an old transaction keeps vacuum from removing these entries, a million of them cost 0.15 seconds.
--
-- Locks   none.
-- Index   outbox_pkey (seq), held_pkey (id), audit_pkey (id), archive_time (discarded_at, id), replay_pkey (id): one entry of each.
-- Called  by Inspector.Tables.
SELECT name, at, greatest(extract(epoch FROM clock_timestamp() - at), 0)::float8 AS age
FROM (
    (SELECT 'outbox' AS name, postroom.clamped(created_at) AS at FROM postroom.outbox ORDER BY seq LIMIT 1)
    UNION ALL
    (SELECT 'held', held_at FROM postroom.held ORDER BY id LIMIT 1)
    UNION ALL
    (SELECT 'audit', at FROM postroom.audit ORDER BY id LIMIT 1)
    UNION ALL
    (SELECT 'archive', discarded_at FROM postroom.archive ORDER BY discarded_at, id LIMIT 1)
    UNION ALL
    (SELECT 'replay', created_at FROM postroom.replay ORDER BY id LIMIT 1)
) o;
