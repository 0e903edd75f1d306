-- Hold the scheduled events, as a relay does when it reads them.
--
-- Locks   the new rows.
-- Called  by office.hold.
INSERT INTO postroom.held (handler, pos, next_at, held_at, logged_at, source, event_id, type, subject, key, content_type, correlation_id, causation_id, data)
SELECT 'outbox', seq, not_before, created_at, not_before, source, event_id, type, subject, key, content_type, correlation_id, causation_id, data
FROM postroom.outbox
WHERE not_before IS NOT NULL
ORDER BY seq;
