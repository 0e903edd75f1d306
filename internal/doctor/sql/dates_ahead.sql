-- The times that lie further ahead than Postroom writes them, because a clock was wrong when they
-- were written: where each is, whose it is, how far ahead it lies in seconds, and the statement that
-- mends it. Of the due times of each handler the statement reads the last one.
--
-- Locks   none.
-- Index   held_due (handler, next_at, pos), for each handler that is subscribed or paused; webhook_endpoint_pkey, for 10,000
--         endpoints. All other tables have few rows.
-- Called  by checkDates.
SELECT what, of, extract(epoch FROM at - now())::float8 AS ahead, remedy
FROM (
    SELECT 'dedupe_window.expired_before' AS what, handler::text AS of, expired_before AS at,
           pg_catalog.format('UPDATE %s.dedupe_window SET expired_before = now() WHERE handler = %L', 'postroom'::regnamespace, handler) AS remedy
    FROM postroom.dedupe_window
    WHERE expired_before > now() + interval '1 minute'
    UNION ALL
    SELECT 'sweep.due_at', '', due_at, pg_catalog.format('UPDATE %s.sweep SET due_at = now()', 'postroom'::regnamespace)
    FROM postroom.sweep
    WHERE due_at > now() + interval '2 hours'
    UNION ALL
    SELECT 'relay.expires_at', coalesce(owner, ''), expires_at,
           pg_catalog.format('UPDATE %s.relay SET expires_at = now() + lease', 'postroom'::regnamespace)
    FROM postroom.relay
    WHERE isfinite(expires_at) AND expires_at > now() + lease + interval '1 minute'
    UNION ALL
    SELECT 'subscription.reader_until', handler::text, reader_until,
           pg_catalog.format('UPDATE %s.subscription SET reader_until = now() WHERE handler = %L', 'postroom'::regnamespace, handler)
    FROM postroom.subscription
    WHERE reader_until > now() + interval '10 minutes'
    UNION ALL
    SELECT 'pause.paused_at', handler::text, paused_at,
           pg_catalog.format('postroom %s', CASE WHEN handler = 'outbox' THEN 'relay resume' ELSE 'handlers resume ' || handler END)
    FROM postroom.pause
    WHERE paused_at > now() + interval '1 minute'
    UNION ALL
    (SELECT 'webhook_endpoint.paused_until', id, paused_until,
            pg_catalog.format('UPDATE %s.webhook_endpoint SET paused_until = NULL WHERE id = %L', 'postroom'::regnamespace, id)
     FROM (SELECT id, paused_until FROM postroom.webhook_endpoint ORDER BY id LIMIT 10000) e
     WHERE paused_until > now() + interval '65 minutes'
     LIMIT 20)
    UNION ALL
    SELECT 'held.next_at', s.handler::text, due.at,
           pg_catalog.format('UPDATE %s.held SET next_at = now() WHERE handler = %L AND next_at > now() + interval ''31 days''', 'postroom'::regnamespace, s.handler)
    FROM (SELECT handler FROM postroom.subscription UNION SELECT pg_catalog.unnest(handlers) FROM postroom.node) s
    CROSS JOIN LATERAL (SELECT max(next_at) AS at FROM postroom.held WHERE held.handler = s.handler AND next_at IS NOT NULL) due
    WHERE due.at > now() + interval '31 days'
) dates
ORDER BY what, of;
