-- How far the log reaches, how far it is published, and whether a relay leads. First and
-- last seq are 0 if the log is empty. begins is in microseconds since 1970: pgx cannot read the text
-- of a time if the database has another DateStyle.
--
-- Locks   none.
-- Index   outbox_pkey (seq), its two ends.
-- Called  by Reach.Extent and Log.Entries.
SELECT coalesce(first.seq, 0) AS first, (extract(epoch FROM postroom.clamped(first.created_at)) * 1000000::numeric)::bigint AS begins, coalesce(last.seq, 0) AS last,
       s.last_value - (NOT s.is_called)::int AS appended, r.high, r.expires_at > clock_timestamp() AS led
FROM postroom.relay r
CROSS JOIN postroom.outbox_seq_seq s
LEFT JOIN LATERAL (SELECT seq, created_at FROM postroom.outbox ORDER BY seq LIMIT 1) first ON true
LEFT JOIN LATERAL (SELECT seq FROM postroom.outbox ORDER BY seq DESC LIMIT 1) last ON true;
