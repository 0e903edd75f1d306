-- About how many bytes a transaction writes if it moves an outgoing event between held and archive, for
-- each of the events $1, in their order. For other events it returns 0, because no relay waits for them.
--
-- Locks   none.
-- Index   held_pkey (id), archive_pkey (id).
-- Called  by Tables.Portions.
SELECT coalesce(pg_catalog.max(pg_catalog.pg_column_size(o.data) + coalesce(pg_catalog.pg_column_size(o.raw_headers), 0)), 0)::bigint
FROM pg_catalog.unnest($1::bigint[]) WITH ORDINALITY AS e (id, n)
LEFT JOIN LATERAL (
    SELECT data, raw_headers FROM postroom.held WHERE held.id = e.id AND handler = 'outbox'
    UNION ALL
    SELECT data, raw_headers FROM postroom.archive WHERE archive.id = e.id AND handler = 'outbox'
) o ON true
GROUP BY e.n
ORDER BY e.n;
