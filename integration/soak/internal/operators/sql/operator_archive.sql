-- Discard $3 charges of source $1 at handler $2: every hundredth charge, from the $4th on. Each
-- archive row names the only audit row with the action discard. $5 is the class of the failures, $6
-- their cause.
--
-- Locks   the new rows.
-- Index   outbox_event (source, event_id); audit_pkey (id), all of it.
-- Called  by office.history.
INSERT INTO postroom.archive (id, discarded_at, audit, handler, dedupe_key, dead_at, held_at, attempts, solitary, class, cause, failures,
                              revision, replays, logged_at, source, event_id, type, subject, key, content_type, data)
SELECT nextval(pg_get_serial_sequence('postroom.held', 'id')), a.at, a.id, $2, o.source || ' ' || o.event_id, o.created_at + interval '40 seconds',
       o.created_at, 5, false, $5::text, $6::bytea, jsonb_build_array(jsonb_build_object('at', o.created_at, 'class', $5::text, 'text', 'the test card was refused')),
       0, 0, o.created_at, o.source, o.event_id, o.type, o.subject, o.key, o.content_type, o.data
FROM generate_series($4::int, $4 + ($3::int - 1) * 100, 100) m
JOIN postroom.outbox o ON o.source = $1 AND o.event_id = 'event-' || lpad((6 * m)::text, 10, '0')
CROSS JOIN (SELECT id, at FROM postroom.audit WHERE action = 'discard') a
ORDER BY o.seq;
