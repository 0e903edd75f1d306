-- Which relay leads, until when it leads, how far behind it is, and whether the log comes from another
-- server and no relay has adopted it here: internal/pglog/sql/adopt.sql says how that shows.
--
-- The oldest committed event that is not recorded as published is the oldest of three events: the
-- first above the column high, the first in the column pending, and, if the relay catches up with late
-- events, the first that it has not passed. The statement computes the number of all such events from
-- seqs, so it also counts seqs that no event has, and published events between late ones.
--
-- Locks   none.
-- Index   outbox_pkey (seq), its end and two seqs; outbox_xid_seq (xid, seq), at most 1,000 entries.
-- Called  by Status.readRelay.
SELECT coalesce(r.owner, ''), r.expires_at > clock_timestamp() AS leads, r.epoch,
       CASE WHEN isfinite(r.expires_at) THEN r.expires_at END AS until,
       coalesce(extract(epoch FROM CASE WHEN isfinite(r.expires_at) THEN r.expires_at - clock_timestamp() END), 0)::float8 AS remaining,
       greatest(coalesce(last.seq, 0) - r.high, 0) + coalesce((SELECT sum(pg_catalog.upper(p) - pg_catalog.lower(p)) FROM pg_catalog.unnest(r.pending) p), 0)::bigint
           + CASE WHEN behind.at IS NOT NULL THEN r.high - r.catch_up_passed ELSE 0 END AS events,
       least(above.at, owed.at, behind.at) AS oldest,
       coalesce(greatest(extract(epoch FROM clock_timestamp() - least(above.at, owed.at, behind.at)), 0), 0)::float8 AS age,
       r.cluster <> (SELECT system_identifier FROM pg_control_system()) AS restored,
       pg_snapshot_xmax(r.snap) > pg_snapshot_xmax(pg_current_snapshot())
           --guard:status-names-rows-of-a-server-that-is-ahead false
           OR EXISTS (SELECT FROM (SELECT seq FROM postroom.outbox WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
                                   ORDER BY xid DESC, seq DESC LIMIT 1000) ahead
                      WHERE ahead.seq > r.floor) AS ahead,
       r.timeline, greatest((SELECT timeline_id FROM pg_control_checkpoint()), (SELECT min_recovery_end_timeline FROM pg_control_recovery())) AS server_timeline
FROM postroom.relay r
LEFT JOIN LATERAL (SELECT seq FROM postroom.outbox ORDER BY seq DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (SELECT postroom.clamped(created_at) AS at FROM postroom.outbox WHERE seq > r.high ORDER BY seq LIMIT 1) above ON true
LEFT JOIN LATERAL (SELECT postroom.clamped(created_at) AS at FROM postroom.outbox
                   WHERE seq >= pg_catalog.lower(r.pending) AND seq < pg_catalog.upper(r.pending) ORDER BY seq LIMIT 1) owed ON true
LEFT JOIN LATERAL (SELECT postroom.clamped(created_at) AS at FROM postroom.outbox
                   --guard:status-counts-what-a-relay-catches-up-with false
                   WHERE r.catch_up_snap::text OPERATOR(pg_catalog.<>) r.snap::text AND seq > r.catch_up_passed AND seq <= r.high ORDER BY seq LIMIT 1) behind ON true;
