-- Which relay leads, until when it leads, and how far behind it is.
--
-- The oldest committed event that is not recorded as published is the older of two events: the
-- first above the column high, and the first in the column pending. The statement computes the
-- number of all such events from seqs, so it also counts seqs that no event has.
--
-- Locks   none.
-- Index   outbox_pkey (seq), its end and two seqs.
-- Called  by Inspector.Status.
SELECT coalesce(r.owner, ''), r.expires_at > clock_timestamp() AS leads, r.epoch,
       CASE WHEN isfinite(r.expires_at) THEN r.expires_at END AS until,
       coalesce(extract(epoch FROM CASE WHEN isfinite(r.expires_at) THEN r.expires_at - clock_timestamp() END), 0)::float8 AS remaining,
       greatest(coalesce(last.seq, 0) - r.high, 0) + coalesce((SELECT sum(pg_catalog.upper(p) - pg_catalog.lower(p)) FROM pg_catalog.unnest(r.pending) p), 0)::bigint AS events,
       least(above.at, owed.at) AS oldest,
       coalesce(greatest(extract(epoch FROM clock_timestamp() - least(above.at, owed.at)), 0), 0)::float8 AS age
FROM postroom.relay r
LEFT JOIN LATERAL (SELECT seq FROM postroom.outbox ORDER BY seq DESC LIMIT 1) last ON true
LEFT JOIN LATERAL (SELECT postroom.clamped(created_at) AS at FROM postroom.outbox WHERE seq > r.high ORDER BY seq LIMIT 1) above ON true
LEFT JOIN LATERAL (SELECT postroom.clamped(created_at) AS at FROM postroom.outbox
                   WHERE seq >= pg_catalog.lower(r.pending) AND seq < pg_catalog.upper(r.pending) ORDER BY seq LIMIT 1) owed ON true;
