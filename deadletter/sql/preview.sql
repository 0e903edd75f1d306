-- The events that a replay would release: at most $12 of the dead events that match the filter $1
-- to $11 and are in no running replay. replay_items.sql chooses events in the same way. The result
-- has a row for each handler and event type. A row counts the events to release, the keys with
-- events that wait, and the matching events that a running replay has (busy). Of the events to
-- release, it counts those that may end a process (suspects), those with steps that are done, those
-- with steps of unknown outcome, those whose handler ended its transaction itself (committed), and
-- outgoing events that are too old for consumers. runs is true
-- if a living process has the handler, or if the events are outgoing. ids has the ids of the events
-- to release.
--
-- Locks   none.
-- Index   those of list.sql of internal/held; held_chain_pos (handler, chain, pos), primary key of receipt.
-- Called  by Store.Preview.
WITH last AS MATERIALIZED (
    SELECT h.dead_at, h.id
    FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) h
    --guard:a-preview-leaves-out-what-another-replay-has true
    WHERE NOT EXISTS (SELECT FROM postroom.replay j WHERE j.id = h.replay AND j.state = 'running')
    ORDER BY h.dead_at, h.id
    OFFSET greatest($12::bigint, 1) - 1
    LIMIT CASE WHEN $12 IS NULL THEN 0 ELSE 1 END
), found AS (
    SELECT h.id, h.handler, h.type, h.chain, h.class, h.solitary, h.dedupe_key, h.logged_at,
           EXISTS (SELECT FROM postroom.replay j WHERE j.id = h.replay AND j.state = 'running') AS busy
    FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) h
    WHERE h.dead_at <= coalesce((SELECT dead_at FROM last), 'infinity') -- so that the index is used
      AND (h.dead_at, h.id) <= (coalesce((SELECT dead_at FROM last), 'infinity'), coalesce((SELECT id FROM last), 9223372036854775807))
)
SELECT f.handler, f.type, count(*) FILTER (WHERE NOT busy) AS events, count(*) FILTER (WHERE busy) AS busy,
       pg_catalog.count(DISTINCT f.chain) FILTER (WHERE EXISTS (SELECT FROM postroom.held o WHERE o.handler = f.handler AND o.chain = f.chain AND o.dead_at IS NULL)) AS keys,
       count(*) FILTER (WHERE f.solitary AND NOT busy) AS suspects,
       count(*) FILTER (WHERE NOT busy AND EXISTS (SELECT FROM postroom.receipt r WHERE r.handler = f.handler AND r.dedupe_key = f.dedupe_key AND r.done_at IS NOT NULL)) AS steps_done,
       count(*) FILTER (WHERE NOT busy AND EXISTS (SELECT FROM postroom.receipt r WHERE r.handler = f.handler AND r.dedupe_key = f.dedupe_key AND r.done_at IS NULL)) AS steps_open,
       count(*) FILTER (WHERE NOT busy AND f.class = 'transaction') AS committed,
       count(*) FILTER (WHERE NOT busy AND f.handler = 'outbox' AND f.logged_at < now() - coalesce(
           (SELECT min(age) FROM postroom.node, pg_catalog.unnest(max_event_ages) age WHERE seen_at > now() - interval '1 minute'), interval '29 days')) AS too_old,
       f.handler = 'outbox' OR EXISTS (SELECT FROM postroom.node WHERE f.handler = ANY (handlers) AND seen_at > now() - interval '1 minute') AS runs,
       pg_catalog.array_agg(f.id) FILTER (WHERE NOT busy) AS ids
FROM found f
GROUP BY f.handler, f.type
ORDER BY f.handler, f.type;
