-- The complete discarded events that match the filter $1 to $11, as JSON, with the person who
-- discarded them and the reason. The event that was discarded first comes first. If $12 is true,
-- the statement leaves out events of a replay that has not ended, because it counts them, and
-- outgoing events that the log still has, except events of a republish.
-- Purge must keep the events that are left out: only their rows in archive tell the relay, a
-- republish and a reconciliation not to publish them. The last three columns have the earlier
-- revisions of an edited event, the original first.
--
-- Locks   none.
-- Index   those of list_discarded.sql of internal/held; audit_pkey (id), outbox_pkey (seq),
--         revision_pkey (held, revision).
-- Called  by Store.Export and Store.Purge.
SELECT jsonb_strip_nulls(pg_catalog.to_jsonb(h) - 'data' - 'raw_headers' - 'audit')
           || pg_catalog.jsonb_build_object('cause', encode(h.cause, 'hex'), 'discarded_by', a.actor, 'reason', a.reason)
           || CASE WHEN h.headers IS NULL THEN '{}' ELSE pg_catalog.jsonb_build_object('headers', h.headers) END AS properties, -- a header may be null
       h.data, h.raw_headers, earlier.properties, earlier.data, earlier.raw_headers
FROM postroom.discarded($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) h
LEFT JOIN postroom.audit a ON a.id = h.audit
LEFT JOIN LATERAL (
    SELECT pg_catalog.array_agg(pg_catalog.to_jsonb(r) - 'held' - 'event_id' - 'data' - 'raw_headers' ORDER BY r.revision) AS properties,
           pg_catalog.array_agg(r.data ORDER BY r.revision) AS data, pg_catalog.array_agg(r.raw_headers ORDER BY r.revision) AS raw_headers
    FROM postroom.revision r
    WHERE r.held = h.id AND h.revision > 0
) earlier ON true
--guard:purge-keeps-what-the-log-has 2.1 true
WHERE NOT $12 OR (h.handler <> 'outbox' OR h.republish IS NOT NULL OR NOT EXISTS (SELECT FROM postroom.outbox o WHERE o.seq = h.pos))
                 --guard:purge-keeps-what-a-replay-counts 1 true
                 AND NOT EXISTS (SELECT FROM postroom.replay j WHERE j.id = h.replay AND j.state = 'running')
ORDER BY discarded_at, h.id;
