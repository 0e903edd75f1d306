-- Which relay leads, how far behind it is, and whether the row of relay is from this cluster. The
-- oldest committed event that is not recorded as published is the older one of two events: the
-- first event above high, and the first event of pending. If the snapshot in the row of relay is
-- ahead of the server, the server has lost transactions that the relay had seen.
--
-- Locks   none.
-- Index   outbox_pkey (seq), two seqs.
-- Called  by checkRelay.
SELECT coalesce(r.owner, '') AS owner, r.epoch, r.high,
       r.expires_at > clock_timestamp() AS leads,
       CASE WHEN isfinite(r.expires_at) THEN extract(epoch FROM clock_timestamp() - r.expires_at) ELSE 0 END::float8 AS expired,
       above.seq IS NOT NULL OR owed.seq IS NOT NULL AS behind,
       coalesce(extract(epoch FROM clock_timestamp() - least(above.at, owed.at)), 0)::float8 AS age,
       r.cluster <> (SELECT system_identifier FROM pg_control_system()) AS restored,
       pg_snapshot_xmax(r.snap) > pg_snapshot_xmax(pg_current_snapshot()) AS ahead
FROM postroom.relay r
LEFT JOIN LATERAL (SELECT seq, postroom.clamped(created_at) AS at FROM postroom.outbox WHERE seq > r.high ORDER BY seq LIMIT 1) above ON true
LEFT JOIN LATERAL (SELECT seq, postroom.clamped(created_at) AS at FROM postroom.outbox
                   WHERE seq >= pg_catalog.lower(r.pending) AND seq < pg_catalog.upper(r.pending) ORDER BY seq LIMIT 1) owed ON true;
