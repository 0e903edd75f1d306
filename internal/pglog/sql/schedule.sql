-- Hold the events of the log that are scheduled for later ($2, seqs), as the leader of epoch $1.
-- They block no key, because scheduled events have no order. The statement does not hold an event
-- that its producer has cancelled already.
--
-- Locks   the new rows.
-- Index   outbox_pkey (seq), held_outgoing (pos), archive_outgoing (pos).
-- Called  by Term.Record.
INSERT INTO postroom.held (handler, pos, next_at, logged_at, source, event_id, type, subject, key, content_type,
                           correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data)
SELECT 'outbox', seq, not_before, greatest(created_at, not_before), source, event_id, type, subject, key, content_type,
       correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data
FROM postroom.outbox
WHERE seq = ANY ($2::bigint[]) AND EXISTS (SELECT FROM postroom.relay WHERE epoch = $1)
  --guard:cancelled-events-are-not-held true
  AND NOT EXISTS (SELECT FROM postroom.archive a WHERE a.handler = 'outbox' AND a.pos = seq AND a.republish IS NULL OFFSET 0)
ON CONFLICT (pos) WHERE handler = 'outbox' DO NOTHING;
