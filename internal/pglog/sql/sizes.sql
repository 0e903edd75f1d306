-- How large the growing tables are, and how far back the log reaches.
--
-- The sizes are those of the files. To find the first row of the log, the server reads the index
-- entries of the deleted rows before it. If an old transaction keeps vacuum from removing these
-- entries, a million of them take 0.15 s.
--
-- The age is that of the first row whose time is not in the future, because prune.sql does not use
-- such times either. The statement looks for it in the first 1,000 rows.
--
-- Locks   none.
-- Index   outbox_pkey (seq), its two ends.
-- Called  by Log.Sizes.
SELECT pg_catalog.pg_total_relation_size('postroom.outbox') AS log,
       pg_catalog.pg_total_relation_size('postroom.held') AS held,
       pg_catalog.pg_total_relation_size('postroom.inbox') AS inbox,
       coalesce(first.seq, 0) AS first,
       coalesce(last.seq, 0) AS last,
       coalesce(greatest(extract(epoch FROM clock_timestamp() - oldest.created_at) * 1000000::numeric, 0), 0)::bigint AS age
FROM (VALUES (1)) AS one (row)
LEFT JOIN (SELECT seq FROM postroom.outbox ORDER BY seq LIMIT 1) first ON true
LEFT JOIN (SELECT created_at FROM (SELECT seq, created_at FROM postroom.outbox ORDER BY seq LIMIT 1000) begin
           WHERE postroom.clamped(created_at) <= clock_timestamp() + interval '1 min' ORDER BY seq LIMIT 1) oldest ON true
LEFT JOIN (SELECT seq FROM postroom.outbox ORDER BY seq DESC LIMIT 1) last ON true;
