-- The complete dead events that match the filter $1 to $11, as JSON. The event that died first
-- comes first. The last three columns have the earlier revisions of an edited event, the original
-- first.
--
-- Locks   none.
-- Index   those of list.sql of internal/held; revision_pkey (held, revision).
-- Called  by Store.Export.
SELECT jsonb_strip_nulls(pg_catalog.to_jsonb(h) - 'data' - 'raw_headers' - 'epoch' - 'next_at' - 'claimed_by')
           || pg_catalog.jsonb_build_object('cause', encode(h.cause, 'hex'))
           || CASE WHEN h.headers IS NULL THEN '{}' ELSE pg_catalog.jsonb_build_object('headers', h.headers) END AS properties, -- a header may be null
       h.data, h.raw_headers, earlier.properties, earlier.data, earlier.raw_headers
FROM postroom.dead_letters($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) h
LEFT JOIN LATERAL (
    SELECT pg_catalog.array_agg(pg_catalog.to_jsonb(r) - 'held' - 'event_id' - 'data' - 'raw_headers' ORDER BY r.revision) AS properties,
           pg_catalog.array_agg(r.data ORDER BY r.revision) AS data, pg_catalog.array_agg(r.raw_headers ORDER BY r.revision) AS raw_headers
    FROM postroom.revision r
    WHERE r.held = h.id AND h.revision > 0
) earlier ON true
ORDER BY h.dead_at, h.id;
