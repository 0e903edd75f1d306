-- Group by cause the dead events that match the filter $1 to $11. The statement reads at most $12
-- events, and begins with the event that died last. If $13 is true, it reads only events without a
-- cause: reopened events that never failed, and events that another program wrote. A row without a
-- handler counts the events that the statement read and that do not match.
--
-- Locks   none.
-- Index   those of list.sql of internal/held; held_pkey (id) for the example.
-- Called  by Store.Groups.
SELECT encode(g.cause, 'hex') AS cause, g.handler, g.class, g.events, g.first, g.last, g.example, g.types, g.keys,
       held.failures -> -1 ->> 'text' AS error
FROM (
    SELECT cause, handler, class, count(*) AS events, min(dead_at) AS first, max(dead_at) AS last,
           (pg_catalog.array_agg(id ORDER BY dead_at DESC, id DESC))[1] AS example,
           coalesce(pg_catalog.array_agg(DISTINCT type) FILTER (WHERE handler IS NOT NULL), '{}') AS types, pg_catalog.count(DISTINCT key) AS keys
    FROM (
        SELECT id, dead_at, CASE WHEN wanted THEN cause END AS cause, CASE WHEN wanted THEN handler END AS handler,
               CASE WHEN wanted THEN class END AS class, CASE WHEN wanted THEN type COLLATE "C" END AS type,
               CASE WHEN wanted THEN key COLLATE "C" END AS key
        FROM (
            SELECT *,
                   ($3::text IS NULL OR type = $3) AND ($4::text IS NULL OR key = $4) AND ($5::text IS NULL OR class = $5)
                      AND ($7::text IS NULL OR source = $7)
                      AND ($9::text IS NULL OR position(pg_catalog.convert_to($9, 'UTF8') IN data) > 0
                           OR EXISTS (SELECT FROM jsonb_array_elements(failures) f WHERE strpos(lower(f ->> 'text'), lower($9)) > 0)) AS wanted
            FROM (SELECT * FROM postroom.dead_letters($1, $2, NULL, NULL, NULL, $6, NULL, $8, NULL, $10, $11) d
                  WHERE NOT $13::bool OR d.cause IS NULL
                  ORDER BY dead_at DESC, id DESC
                  LIMIT $12) looked
        ) judged
    ) sorted
    GROUP BY cause, handler, class
) g
LEFT JOIN postroom.held ON g.handler IS NOT NULL AND held.id = g.example;
