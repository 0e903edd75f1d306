-- The complete discarded events that match the filter $1 to $11, as JSON, with the person who
-- discarded them and the reason. The event that was discarded first comes first. If $12 is true,
-- the statement leaves out outgoing events that the log still has, except events of a republish.
-- Purge must keep the events that are left out: only their rows in archive tell the relay, a
-- republish and a reconciliation not to publish them.
--
-- Locks   none.
-- Index   those of list_discarded.sql of internal/held; audit_pkey (id), outbox_pkey (seq).
-- Called  by Store.Export and Store.Purge.
SELECT jsonb_strip_nulls(to_jsonb(h) - 'data' - 'raw_headers' - 'fingerprint' - 'audit')
           || jsonb_build_object('cause', encode(fingerprint, 'hex'), 'discarded_by', a.actor, 'reason', a.reason) AS properties,
       data, raw_headers
FROM postroom.discarded($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) h
LEFT JOIN postroom.audit a ON a.id = h.audit
WHERE NOT $12 OR h.handler <> 'outbox' OR h.republish IS NOT NULL
   OR NOT EXISTS (SELECT FROM postroom.outbox o WHERE o.seq = h.pos)
ORDER BY discarded_at, h.id;
