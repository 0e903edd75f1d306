-- Of the events with a number below $1, hold every $2-th one for one of five handlers, and insert
-- its inbox row. Five of six held events are dead, with 50 causes. The other events are tried again
-- later, are due, or wait behind an earlier event of their key.
--
-- Locks   the new rows.
-- Called  by fill.
WITH events AS (
    SELECT o.*, n, n / $2::bigint AS i, 'handler-' || (n / $2) % 5 AS handler, o.source || ' ' || o.event_id AS dedupe_key
    FROM generate_series(0, $1::bigint - 1, $2) n
    JOIN postroom.outbox o ON o.source = '/shop-' || n % 4 AND o.event_id = 'event-' || n
), decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key, digest) SELECT handler, dedupe_key, digest FROM events
)
INSERT INTO postroom.held (handler, dedupe_key, pos, chain, next_at, dead_at, held_at, attempts, class, cause, failures, first_failed_at,
                           logged_at, source, event_id, type, subject, key, content_type, correlation_id, causation_id, trace_parent, data)
SELECT handler, dedupe_key, seq, CASE WHEN i % 6 = 5 AND i % 18 = 17 THEN key END,
       CASE WHEN i % 6 < 5 THEN NULL WHEN i % 18 = 5 THEN now() + interval '1 hour' + i % 100000 * interval '1 second' WHEN i % 18 = 11 THEN now() END,
       CASE WHEN i % 6 < 5 THEN created_at + interval '1 minute' END,
       created_at, 3, (ARRAY['23505', 'timeout', 'error'])[1 + i % 3], decode(lpad(to_hex(i % 50), 32, '0'), 'hex'),
       jsonb_build_array(jsonb_build_object('at', created_at, 'class', (ARRAY['23505', 'timeout', 'error'])[1 + i % 3], 'text', 'card of event ' || n || ' declined')),
       created_at, created_at, source, event_id, type, subject, key, content_type, correlation_id, causation_id, trace_parent, data
FROM events
ORDER BY seq;
