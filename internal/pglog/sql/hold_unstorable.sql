-- Hold event $2 (seq) as dead, as the leader of epoch $1, in a reduced form. The table held refused
-- the unchanged event; $5 says why. raw_headers gets the texts of the event, and data its body, as in hold.sql.
--
-- $3 the key, or NULL if no event waits behind this one   $4 class   $6 attempts
-- $7 cause   $8 the republish that read the event, or NULL
--
-- If the event is in held already, its row keeps the values of the event and becomes dead.
--
-- Locks   the row.
-- Index   outbox_pkey (seq), held_outgoing (pos).
-- Called  by Term.Record, for one event at a time.
INSERT INTO postroom.held AS held
       (handler, pos, chain, class, cause, attempts, first_failed_at, failures, dead_at, republish, logged_at,
        source, event_id, type, subject, content_type, data, raw_headers)
SELECT 'outbox', one.seq, $3::text, $4::text, $7::bytea, $6::int, now(),
       jsonb_build_array(jsonb_build_object('at', now(), 'class', $4::text, 'text', $5::text)), now(), $8::bigint, now(),
       'unstorable', 'seq-' || one.seq, 'unstorable', 'unstorable', 'application/octet-stream', coalesce(CASE WHEN octet_length(o.data) > 16777216 THEN substring(o.data, 1, 16777216) ELSE o.data END, ''),
       convert_to(coalesce(jsonb_strip_nulls(jsonb_build_object(
           'source', left(o.source, 100000), 'id', left(o.event_id, 100000), 'type', left(o.type, 100000),
           'subject', left(o.subject, 100000), 'key', left(o.key, 100000), 'content_type', left(o.content_type, 100000),
           'correlation_id', left(o.correlation_id, 100000), 'causation_id', left(o.causation_id, 100000),
           'trace_parent', left(o.trace_parent, 100000), 'trace_state', left(o.trace_state, 100000),
           'created_at', o.created_at::text, 'occurred_at', o.occurred_at::text, 'not_before', o.not_before::text,
           'headers', o.headers)), '{}')::text, 'UTF8')
FROM (VALUES ($2::bigint)) AS one (seq)
LEFT JOIN postroom.outbox o ON o.seq = one.seq
WHERE EXISTS (SELECT FROM postroom.relay WHERE epoch = $1)
  AND (o.seq IS NOT NULL OR EXISTS (SELECT FROM postroom.held h WHERE h.handler = 'outbox' AND h.pos = one.seq))
ON CONFLICT (pos) WHERE handler = 'outbox' DO UPDATE
SET class = excluded.class, cause = excluded.cause, attempts = excluded.attempts,
    first_failed_at = coalesce(held.first_failed_at, now()), failures = excluded.failures, dead_at = now(), next_at = NULL;
