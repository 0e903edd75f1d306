-- Count the enabled endpoints whose types are none of those that came to a sender, among at most
-- 10,000 endpoints. Also return the first of them with its types, and some of the types that came.
-- An endpoint counts only if it exists for a day, and only if a sender has got events for a day and
-- still gets some. No endpoint counts if too many types came to be recorded.
--
-- Locks   none.
-- Index   webhook_endpoint_pkey (id). filter has few rows.
-- Called  by Endpoints.
WITH came AS (
    SELECT pg_catalog.array_agg(DISTINCT t) AS types
    FROM (SELECT types FROM postroom.filter
          -- GREATEST ignores NULL
          WHERE kind = 'sender' AND since < now() - interval '1 day' AND greatest(taken_at, passed_at) > now() - interval '1 day'
            AND NOT EXISTS (SELECT FROM postroom.filter WHERE kind = 'sender' AND pg_catalog.cardinality(types) >= 100)) f,
         pg_catalog.unnest(f.types) AS t
), silent AS (
    SELECT e.id, e.types
    FROM (SELECT id, types FROM postroom.webhook_endpoint
          WHERE disabled_at IS NULL AND types OPERATOR(pg_catalog.<>) '{}'::text[] AND created_at < now() - interval '1 day'
          ORDER BY id LIMIT 10000) e,
         came
    WHERE NOT e.types OPERATOR(pg_catalog.&&) came.types
)
SELECT count(*), coalesce((pg_catalog.array_agg(id ORDER BY id))[1], ''), coalesce((SELECT types FROM silent ORDER BY id LIMIT 1), '{}'),
       coalesce((SELECT types FROM came), '{}')
FROM silent;
