-- Count the webhooks that took effect, by source.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by endpoints.
SELECT coalesce(jsonb_object_agg(source, n), '{}')
FROM (SELECT source, count(*) AS n FROM taken GROUP BY source) AS t;
