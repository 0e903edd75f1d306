-- Hold events of the log, as the leader of epoch $1: what the broker refused, and
-- what waits behind it. A row is one element of each array.
--
-- $2 seq   $3 key, NULL where none waits   $4 class, NULL for an event that only
-- waits   $5 text   $6 attempts   $7 dead   $8 when the next attempt is due, from
-- now   $9 fingerprint   $10 the rewind that it is a repetition for, or NULL
--
-- What has a key becomes due by wake.sql, which knows the head of the key.
--
-- Locks   the new rows.
-- Index   outbox_pkey (seq), held_outgoing (pos).
-- Called  by Term.Record.
INSERT INTO postroom.held (handler, pos, key, class, fingerprint, attempts, first_failed_at, failures, dead_at, next_at, rewind, logged_at,
                           source, event_id, type, subject, event_key, content_type, correlation_id, causation_id,
                           occurred_at, trace_parent, trace_state, headers, data)
SELECT 'outbox', o.seq, h.key, h.class, h.fingerprint, h.attempts,
       CASE WHEN h.class IS NOT NULL THEN now() END,
       CASE WHEN h.class IS NOT NULL THEN jsonb_build_array(jsonb_build_object('at', now(), 'class', h.class, 'text', h.text)) END,
       CASE WHEN h.dead THEN now() END,
       CASE WHEN NOT h.dead AND h.key IS NULL THEN now() + h.after END,
       h.rewind, greatest(o.created_at, o.not_before), o.source, o.event_id, o.type, o.subject, o.key, o.content_type,
       o.correlation_id, o.causation_id, o.occurred_at, o.trace_parent, o.trace_state, o.headers, o.data
FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::int[], $7::bool[], $8::interval[], $9::bytea[], $10::bigint[])
         AS h (seq, key, class, text, attempts, dead, after, fingerprint, rewind)
JOIN postroom.outbox o ON o.seq = h.seq
WHERE EXISTS (SELECT FROM postroom.relay WHERE epoch = $1)
ON CONFLICT (pos) WHERE handler = 'outbox' DO NOTHING;
