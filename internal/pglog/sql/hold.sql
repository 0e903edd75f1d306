-- Hold events of the log, as the leader of epoch $1: events that the broker refused, and events
-- that wait behind them. Each array has one element for each event.
--
-- $2 seq   $3 key, NULL if no event waits behind this one   $4 class, NULL for an event that
-- only waits   $5 text   $6 attempts   $7 dead   $8 the time from now until the next attempt
-- $9 cause   $10 the republish that read the event, or NULL
--
-- If the log has a value that no event can have, the statement stores what fits. It cuts a text
-- that is too long. It leaves out a time outside the years 1 to 9999. If it cut or left out a value,
-- it also stores in raw_headers what the log has, with up to 100,000 characters of each text.
-- raw_headers never gets created_at: if this time is outside these years, logged_at gets not_before or
-- the current time. Of a body the statement stores the first 16 MiB. A gigabyte would take longer than
-- a lease, and operators could not export it.
--
-- The statement sets next_at only for an event without a key. If an event has a key, unblock.sql
-- sets next_at, because it knows the first event of each key.
--
-- Locks   the new rows.
-- Index   outbox_pkey (seq), held_outgoing (pos).
-- Called  by Term.Record.
INSERT INTO postroom.held (handler, pos, chain, class, cause, attempts, first_failed_at, failures, dead_at, next_at, republish, logged_at,
                           source, event_id, type, subject, key, content_type, correlation_id, causation_id,
                           occurred_at, trace_parent, trace_state, headers, data, raw_headers)
SELECT 'outbox', o.seq, h.key, h.class, h.cause, h.attempts,
       CASE WHEN h.class IS NOT NULL THEN now() END,
       CASE WHEN h.class IS NOT NULL THEN jsonb_build_array(jsonb_build_object('at', now(), 'class', h.class, 'text', h.text)) END,
       CASE WHEN h.dead THEN now() END,
       CASE WHEN NOT h.dead AND h.key IS NULL THEN now() + h.after END,
       h.republish, coalesce(postroom.clamped(greatest(o.created_at, o.not_before)), postroom.clamped(o.created_at), now()),
       postroom.clipped(o.source, 255), postroom.clipped(o.event_id, 255), postroom.clipped(o.type, 255), postroom.clipped(o.subject, 255),
       postroom.clipped(o.key, 255), postroom.clipped(o.content_type, 255), postroom.clipped(o.correlation_id, 255),
       postroom.clipped(o.causation_id, 255), postroom.clamped(o.occurred_at), postroom.clipped(o.trace_parent, 255),
       postroom.clipped(o.trace_state, 512),
       o.headers,
       --guard:the-body-of-a-held-event-is-bounded 1 false
       CASE WHEN octet_length(o.data) > 16777216 THEN substring(o.data, 1, 16777216) ELSE o.data END,
       CASE WHEN greatest(octet_length(o.source), octet_length(o.event_id), octet_length(o.type), octet_length(o.subject), octet_length(o.key),
                          octet_length(o.content_type), octet_length(o.correlation_id), octet_length(o.causation_id),
                          octet_length(o.trace_parent), octet_length(o.trace_state) - 257) > 255
                 OR octet_length(o.data) > 16777216
                 OR o.occurred_at IS NOT NULL AND postroom.clamped(o.occurred_at) IS NULL
                 OR o.not_before IS NOT NULL AND postroom.clamped(o.not_before) IS NULL
            THEN convert_to(jsonb_strip_nulls(jsonb_build_object(
                'source', left(o.source, 100000), 'id', left(o.event_id, 100000), 'type', left(o.type, 100000),
                'subject', left(o.subject, 100000), 'key', left(o.key, 100000), 'content_type', left(o.content_type, 100000),
                'correlation_id', left(o.correlation_id, 100000), 'causation_id', left(o.causation_id, 100000),
                'trace_parent', left(o.trace_parent, 100000), 'trace_state', left(o.trace_state, 100000),
                'occurred_at', o.occurred_at::text, 'not_before', o.not_before::text,
                'body', CASE WHEN octet_length(o.data) > 16777216 THEN octet_length(o.data)::text || ' bytes, of which the first 16777216 are kept' END,
                'headers', o.headers))::text, 'UTF8') END
FROM unnest($2::bigint[], $3::text[], $4::text[], $5::text[], $6::int[], $7::bool[], $8::interval[], $9::bytea[], $10::bigint[])
         AS h (seq, key, class, text, attempts, dead, after, cause, republish)
JOIN postroom.outbox o ON o.seq = h.seq
WHERE EXISTS (SELECT FROM postroom.relay WHERE epoch = $1)
ON CONFLICT (pos) WHERE handler = 'outbox' DO NOTHING;
