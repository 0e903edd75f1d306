-- The events of the log, in the order of seq. If $1 is true, only the events that this transaction
-- wrote.
--
-- Locks   none.
-- Index   outbox_xid_seq (xid, seq), or the primary key.
-- Called  by written.
SELECT event_id, source, type, subject, coalesce(key, ''), content_type,
       coalesce(correlation_id, ''), coalesce(causation_id, ''),
       coalesce(trace_parent, ''), coalesce(trace_state, ''),
       occurred_at, not_before,
       (SELECT pg_catalog.jsonb_object_agg(h.key, h.value) FROM jsonb_each_text(headers) h) AS headers, -- SQL may have written values that are not texts
       data, created_at
FROM postroom.outbox
WHERE NOT $1::boolean OR xid = pg_current_xact_id_if_assigned()
ORDER BY seq;
