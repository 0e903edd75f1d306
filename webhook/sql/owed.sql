-- The next events of the log after seq $1 that were written at $3 or later, and that endpoint $2
-- gets. At most $5 events, with at most $7 bytes together ($7 is larger than any event). $4 is the
-- header that names an event's account; it is empty if no header does. If it names one, the result
-- has no event without that header. $6 are the types that
-- customers may get: the log also has internal events. The result has no cancelled event, and no
-- scheduled event before its time. SQL that says that it has checked its row can write values that no
-- event has. The statement leaves out a row that has values of any size, and Sender.owed leaves out
-- other invalid ones.
--
-- Locks   none.
-- Index   the primary key of outbox; archive_outgoing (pos). This reads the log from $1 on.
-- Order   by seq.
-- Called  by Sender.owed.
SELECT seq, source, event_id, type, subject, content_type, correlation_id, causation_id, occurred_at, trace_parent, trace_state, headers, data
FROM (
    SELECT o.seq, o.source, o.event_id, o.type, o.subject, o.content_type, coalesce(o.correlation_id, '') AS correlation_id, coalesce(o.causation_id, '') AS causation_id,
           coalesce(o.occurred_at, o.created_at) AS occurred_at, coalesce(o.trace_parent, '') AS trace_parent,
           coalesce(o.trace_state, '') AS trace_state, o.headers, o.data,
           sum(octet_length(o.data) + coalesce(postroom.header_bytes(o.headers), 0)) OVER (ORDER BY o.seq) AS bytes
    FROM postroom.outbox AS o
    JOIN postroom.webhook_endpoint AS e ON e.id = $2
    --guard:webhook-types-of-resent 3 true
    WHERE o.seq > $1 AND o.created_at >= $3 AND o.type = ANY ($6) AND (pg_catalog.cardinality(e.types) = 0 OR o.type = ANY (e.types))
      --guard:webhook-account-of-resent true
      AND e.account = CASE WHEN $4 = '' THEN ''
                           ELSE coalesce((SELECT h.value FROM jsonb_each_text(o.headers) AS h
                                          --guard:webhook-account-header-of-resent-in-any-case = h.key = $4
                                          WHERE lower(h.key) = lower($4) LIMIT 1), '') END
      --guard:webhook-event-without-an-account-is-not-resent true
      AND ($4 = '' OR e.account <> '')
      AND (o.not_before IS NULL OR o.not_before <= now())
      AND NOT EXISTS (SELECT FROM postroom.archive AS a WHERE a.handler = 'outbox' AND a.pos = o.seq AND a.republish IS NULL)
      --guard:resend-leaves-out-what-is-no-event true
      AND octet_length(o.data) <= 983040
      AND greatest(octet_length(o.content_type), octet_length(o.correlation_id), octet_length(o.trace_parent), octet_length(o.trace_state), octet_length(o.subject)) <= 512
    ORDER BY o.seq
    LIMIT $5::int
) next
--guard:webhook-bytes-of-resent true
WHERE bytes <= $7::bigint
ORDER BY seq;
