-- How much was committed since snapshot $3, until snapshot $4, or until now if $4 is NULL. The log was
-- read up to seq $1 (high), and $2 is floor.
-- The column above says how many seqs above high the sequence has given, including unused seqs.
-- bottom is the higher one of floor and the seq before the first row of the log. xid_from and
-- xid_until are the range of transaction ids since the snapshot.
--
-- Locks   none.
-- Index   outbox_pkey (seq), its first row.
-- Called  by Term.Read and Log.Entries, before late_by_xid.sql or late_by_seq.sql.
SELECT until.snap::text AS snap, pg_backend_pid()::text AS pid,
       s.last_value - $1::bigint AS above,
       greatest($2::bigint, coalesce(first.seq - 1, $1::bigint)) AS bottom,
       pg_snapshot_xmax($3::pg_snapshot)::text::bigint AS xid_from,
       pg_snapshot_xmax(until.snap)::text::bigint AS xid_until
FROM postroom.outbox_seq_seq s
CROSS JOIN (SELECT coalesce($4::pg_snapshot, pg_current_snapshot()) AS snap) AS until
LEFT JOIN LATERAL (SELECT seq FROM postroom.outbox ORDER BY seq LIMIT 1) first ON true;
