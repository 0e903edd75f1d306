-- One step of the search by transaction id for rows that became visible between two snapshots. It
-- returns ranges of seqs.
--
-- $1 high   $2 floor   $3 snap, as in pass.sql   $4 the later snapshot   $5 the first
-- transaction id of the step   $6 the first one after the step
--
-- The step that begins at the end (xmax) of $3 also examines the transactions that were open in $3.
-- A step also reads index entries of rows above high that its transactions wrote, and skips them.
--
-- Locks   none.
-- Index   outbox_xid_seq (xid, seq).
-- Called  by Term.Read and Log.Entries, if there are many rows up to high.
SELECT coalesce(pg_catalog.range_agg(int8range(seq, seq, '[]')), '{}')::text
FROM (
    SELECT o.seq
    FROM pg_snapshot_xip($3::pg_snapshot) AS ended (xid)
    CROSS JOIN LATERAL (SELECT seq FROM postroom.outbox o
                        WHERE (o.xid, o.seq) > (ended.xid, $2::bigint) AND (o.xid, o.seq) <= (ended.xid, $1::bigint)
                        ORDER BY o.xid, o.seq
                        OFFSET 0) o
    WHERE $5::bigint = pg_snapshot_xmax($3::pg_snapshot)::text::bigint
      AND pg_visible_in_snapshot(ended.xid, $4::pg_snapshot)
    UNION ALL
    SELECT o.seq
    FROM (SELECT xid, seq FROM postroom.outbox
          WHERE xid >= $5::bigint::text::xid8 AND xid < $6::bigint::text::xid8 AND seq <= $1::bigint AND seq > $2::bigint
          ORDER BY xid, seq
          OFFSET 0) o
    --guard:the-search-by-transactions-ends-at-its-snapshot true
    WHERE pg_visible_in_snapshot(o.xid, $4::pg_snapshot)
) late;
