-- Of the 2,000 newest events whose seq is relay.high or less, those that the relay recorded as
-- published. Such an event is visible in the snapshot of the relay, or was written before the
-- database was restored into this cluster (its seq is relay.floor or less). It is not pending, held
-- or discarded. Scheduled events are left out, because created_at does not say when the relay
-- published them. So are events whose time is outside the years 1 to 9999.
--
-- Locks   none.
-- Index   outbox_pkey (seq), from high down; held_outgoing (pos); archive_outgoing (pos).
-- Order   by seq, the newest first.
-- Called  by compareTails.
SELECT o.seq, o.source::text, o.event_id::text, o.subject::text, o.created_at
FROM postroom.relay r
CROSS JOIN LATERAL (SELECT * FROM postroom.outbox WHERE seq <= r.high ORDER BY seq DESC LIMIT 2000) o
WHERE (o.seq <= r.floor OR pg_visible_in_snapshot(o.xid, r.snap))
  AND NOT r.pending OPERATOR(pg_catalog.@>) o.seq
  AND o.not_before IS NULL AND postroom.clamped(o.created_at) IS NOT NULL
  AND NOT EXISTS (SELECT FROM postroom.held WHERE handler = 'outbox' AND pos = o.seq)
  AND NOT EXISTS (SELECT FROM postroom.archive WHERE handler = 'outbox' AND pos = o.seq)
ORDER BY o.seq DESC;
