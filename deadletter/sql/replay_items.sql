-- Choose the events of replay $12: at most $13 of the dead events that match the filter $1 to $11
-- and are in no other running replay. The event that died first comes first. The events of a key
-- come together, in their order. The statement returns how many events the replay has, and how many
-- of these events are outgoing and too old for consumers.
--
-- A dead event of an ordered handler may block no key, for instance because it came late. If the
-- replay has several such events of a key, they get a key that only this replay uses, so that they
-- run one after the other. This key contains a control character, which no key of an event has. It
-- is short enough for the index.
--
-- Locks   the held rows.
-- Index   those of list.sql of internal/held; held_pkey (id).
-- Called  by Store.CreateReplay, after replay_serialize.sql.
WITH wanted AS (
    SELECT h.id, h.handler, h.source, h.event_id, h.dead_at, h.pos, h.logged_at, h.chain AS shared,
           CASE WHEN h.chain IS NULL AND h.key IS NOT NULL AND h.pos IS NOT NULL
                     AND EXISTS (SELECT FROM postroom.subscription s WHERE s.handler = h.handler AND s.ordered)
                THEN h.key END AS key
    FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) h
    --guard:an-event-is-in-one-replay true
    WHERE NOT EXISTS (SELECT FROM postroom.replay j WHERE j.id = h.replay AND j.state = 'running')
    ORDER BY h.dead_at, h.id
    LIMIT $13
), chained AS (
    SELECT *, CASE WHEN key IS NOT NULL
                        AND count(*) OVER (PARTITION BY handler, key) > 1
                        AND row_number() OVER (PARTITION BY handler, key, pos ORDER BY id) = 1
                   THEN pg_catalog.format(E'replay %s\t%s', $12::bigint,
                               CASE WHEN octet_length(key) > 960 THEN encode(sha256(pg_catalog.convert_to(key, 'UTF8')), 'hex') ELSE key END)
                   END AS chain
    FROM wanted
), grouped AS (
    SELECT *, CASE WHEN shared IS NOT NULL THEN 'k' || shared WHEN chain IS NOT NULL THEN 'c' || chain ELSE 'i' || id::text END AS together
    FROM chained
), sorted AS (
    SELECT *, row_number() OVER (ORDER BY first, handler, together, pos, id) AS n
    FROM (SELECT *, min(dead_at) OVER (PARTITION BY handler, together) AS first FROM grouped) g
), items AS (
    INSERT INTO postroom.replay_event (replay, n, through, held, handler, source, event_id, chain, dead_at)
    SELECT $12, n, max(n) OVER (PARTITION BY handler, together), id, handler, source, event_id, chain, dead_at
    FROM sorted
), marked AS (
    UPDATE postroom.held SET replay = $12 WHERE id = ANY (ARRAY (SELECT id FROM sorted)) -- a join could read all rows of held
), counted AS (
    UPDATE postroom.replay SET items = (SELECT count(*) FROM sorted) WHERE id = $12
)
SELECT count(*),
       count(*) FILTER (WHERE handler = 'outbox' AND logged_at < now() - coalesce(
           (SELECT min(age) FROM postroom.node, pg_catalog.unnest(max_event_ages) age WHERE seen_at > now() - interval '1 minute'), interval '29 days'))
FROM sorted;
