-- Group by cause the dead events of handler $1, class $2 and cause $3 that died at $4 or later, and
-- before $5. A parameter that is NULL is no condition. The statement returns at most $6 causes;
-- more_groups says that there may be more causes. It counts at most $7 events. If there are more
-- dead events, it divides $7 equally among the causes; more says that a cause may have more events.
-- id is the id of the newest dead event of the cause. types has the types of the newest dead events
-- of the cause, and keys counts their keys. For these two, it reads at most $8 events in all.
--
-- If vacuum has processed less than nine tenths of the table, the index alone is not enough: the
-- server also reads the rows, which takes ten times as long. Then the statement counts at most a
-- twentieth of $7 events.
--
-- The statement compares the pair (cause, dead_at), so that held_dead_cause is the only index
-- that the planner can use. With held_dead, the server would read all dead events to find the few
-- events of one cause.
--
-- A cause has one handler and one class, because both are part of the digest that identifies it.
--
-- Locks   none.
-- Index   held_dead_cause (cause, dead_at, id): once for each cause, then the entries of the cause;
--         held_dead (dead_at, id) for the number of dead events.
-- Called  by Store.Groups.
WITH RECURSIVE causes AS (
    (SELECT cause FROM postroom.held
     WHERE dead_at IS NOT NULL AND cause IS NOT NULL AND ($3::bytea IS NULL OR cause = $3)
     ORDER BY cause LIMIT 1)
    UNION ALL
    SELECT (SELECT h.cause FROM postroom.held h
            WHERE h.dead_at IS NOT NULL AND h.cause > causes.cause AND $3::bytea IS NULL
            ORDER BY h.cause LIMIT 1)
    FROM causes
    WHERE causes.cause IS NOT NULL
), some_cause AS (
    SELECT cause FROM causes WHERE cause IS NOT NULL LIMIT $6
), last AS MATERIALIZED (
    SELECT c.cause, l.*
    FROM some_cause c
    CROSS JOIN LATERAL (SELECT h.id, h.handler, h.class, h.failures -> -1 ->> 'text' AS error
                        FROM postroom.held h
                        WHERE h.dead_at IS NOT NULL AND (h.cause, h.dead_at) >= (c.cause, coalesce($4::timestamptz, '-infinity'))
                          AND (h.cause, h.dead_at) < (c.cause, coalesce($5::timestamptz, 'infinity'))
                        ORDER BY h.cause DESC, h.dead_at DESC, h.id DESC
                        LIMIT 1) l
    WHERE ($1::text IS NULL OR l.handler = $1) AND ($2::text IS NULL OR l.class = $2)
), budget AS MATERIALIZED (
    SELECT CASE WHEN c.relallvisible::numeric * current_setting('block_size')::numeric >= 0.9 * pg_catalog.pg_relation_size(c.oid)::numeric THEN $7 ELSE $7 / 20 END AS events
    FROM pg_class c WHERE c.oid = 'postroom.held'::regclass::oid
), bound AS MATERIALIZED (
    SELECT CASE WHEN (SELECT count(*) FROM (SELECT FROM postroom.held h WHERE h.dead_at IS NOT NULL ORDER BY h.dead_at LIMIT budget.events + 1) d) <= budget.events
                THEN budget.events ELSE budget.events / greatest((SELECT count(*) FROM last), 1) END AS most
    FROM budget
)
SELECT encode(last.cause, 'hex') AS cause, last.handler, last.class, n.events, n.events = (SELECT most FROM bound) AS more, n.first, n.last, last.id,
       latest.types, latest.keys, last.error, (SELECT count(*) FROM some_cause) = $6::bigint AS more_groups
FROM last
CROSS JOIN LATERAL (SELECT count(*) AS events, min(dead_at) AS first, max(dead_at) AS last
                    FROM (SELECT h.dead_at FROM postroom.held h
                          WHERE h.dead_at IS NOT NULL AND (h.cause, h.dead_at) >= (last.cause, coalesce($4::timestamptz, '-infinity'))
                            AND (h.cause, h.dead_at) < (last.cause, coalesce($5::timestamptz, 'infinity'))
                          ORDER BY h.cause DESC, h.dead_at DESC, h.id DESC
                          LIMIT (SELECT most FROM bound)) h) n
CROSS JOIN LATERAL (SELECT pg_catalog.array_agg(DISTINCT type COLLATE "C") AS types, pg_catalog.count(DISTINCT key COLLATE "C") AS keys
                    FROM (SELECT h.type, h.key FROM postroom.held h
                          WHERE h.dead_at IS NOT NULL AND (h.cause, h.dead_at) >= (last.cause, coalesce($4::timestamptz, '-infinity'))
                            AND (h.cause, h.dead_at) < (last.cause, coalesce($5::timestamptz, 'infinity'))
                          ORDER BY h.cause DESC, h.dead_at DESC, h.id DESC
                          LIMIT $8::bigint / (SELECT count(*) FROM last)) h) latest
ORDER BY n.events DESC, n.last DESC, last.cause;
