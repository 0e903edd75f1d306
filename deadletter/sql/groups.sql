-- The dead events that match the filter $1 to $11, by what killed them; the largest
-- groups first, $12 of them at the most, and how many there are.
--
-- Locks   none.
-- Index   as list.sql of internal/held; held_pkey (id) for one example of each.
-- Called  by Store.Groups.
WITH found AS (
    SELECT fingerprint, handler, class, count(*) AS events, min(dead_at) AS first, max(dead_at) AS last, max(id) AS example,
           array_agg(DISTINCT type) AS types, count(DISTINCT event_key) AS keys
    FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
    GROUP BY fingerprint, handler, class
)
SELECT encode(g.fingerprint, 'hex') AS cause, g.handler, g.class, g.events, g.first, g.last, g.example, g.types, g.keys,
       held.failures -> -1 ->> 'text' AS error, count(*) OVER () AS groups
FROM found g
LEFT JOIN postroom.held ON held.id = g.example
ORDER BY g.events DESC, g.last DESC, g.fingerprint
LIMIT $12;
