-- One step of the search by seq for rows that became visible between two snapshots. It returns
-- ranges of seqs.
--
-- $1 the seq before the step's first seq   $2 the step's last seq   $3 snap, as in pass.sql
-- $4 the later snapshot
--
-- Locks   none.
-- Index   outbox_pkey (seq).
-- Called  by Term.Read and Log.Entries, if there are few rows up to high.
SELECT coalesce(pg_catalog.range_agg(int8range(seq, seq, '[]')), '{}')::text AS late, count(*) AS rows, 0::bigint AS last_xid, 0::bigint AS last_seq
FROM postroom.outbox
WHERE seq > $1 AND seq <= $2
  AND NOT pg_visible_in_snapshot(xid, $3::pg_snapshot) AND pg_visible_in_snapshot(xid, $4::pg_snapshot);
