-- Hold events of source $1 for handler $2. The candidates are the events whose number is $3 more
-- than a multiple of six. The statement holds $5 candidates: every $6th candidate, from the $4th
-- on.
--
-- $7  the state of the events:
--     dead; blocking (dead, and the first event of its key); waiting (behind a blocking event);
--     retrying (due in some hours); due (for a minute)
-- $8  class of the failures   $9 text of the failures; %s is the event's id   $10 cause
-- $11 how many attempts failed
--
-- Locks   the new rows.
-- Index   outbox_event (source, event_id).
-- Called  by office.hold.
WITH events AS (
    SELECT o.*, n, o.source || ' ' || o.event_id AS dedupe_key
    FROM generate_series($4::int, $4 + ($5::int - 1) * $6::int, $6) m
    CROSS JOIN LATERAL (SELECT 6 * m + $3::int AS n) number
    JOIN postroom.outbox o ON o.source = $1 AND o.event_id = 'event-' || lpad(n::text, 10, '0')
), decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key, digest)
    SELECT $2, dedupe_key, digest FROM events
    ON CONFLICT DO NOTHING
)
INSERT INTO postroom.held (handler, dedupe_key, pos, chain, next_at, dead_at, held_at, attempts, class, cause, failures, first_failed_at,
                           logged_at, source, event_id, type, subject, key, content_type, correlation_id, causation_id, data)
SELECT $2, dedupe_key,
       CASE WHEN $7::text IN ('blocking', 'waiting') THEN seq - 1000000000 END, -- before all events of the stream
       CASE WHEN $7 IN ('blocking', 'waiting') THEN key END,
       CASE $7 WHEN 'retrying' THEN now() + interval '2 hours' + n % 3600 * interval '1 second' WHEN 'due' THEN now() - interval '1 minute' END,
       CASE WHEN $7 IN ('dead', 'blocking') THEN created_at + $11::int * interval '8 seconds' END,
       created_at + interval '20 milliseconds', $11, $8::text, $10::bytea,
       (SELECT jsonb_agg(jsonb_build_object('at', created_at + (a - 1) * interval '8 seconds', 'class', $8::text, 'text', format($9::text, event_id)) ORDER BY a)
        FROM generate_series(1, $11) a),
       CASE WHEN $11 > 0 THEN created_at + interval '20 milliseconds' END,
       created_at, source, event_id, type, subject, key, content_type, correlation_id, causation_id,
       convert_to(rpad('{"n": ' || n || ', "card": "' || 4000 + n % 5000 || '", "pad": "', 510, 'x') || '"}', 'UTF8')
FROM events
ORDER BY seq;
