-- One step of the search by transaction id for rows that became visible between two snapshots. It
-- returns ranges of seqs, how many rows these are, and the transaction id and the seq of the last
-- row.
--
-- $1 high   $2 floor   $3 snap, as in pass.sql   $4 the later snapshot   $5 the first
-- transaction id of the step   $6 the first one after the step   $7 and $8 the transaction id and
-- the seq after which the step begins: 0, or the last row of the part before   $9 the most rows
--
-- The step that begins at the end (xmax) of $3 also examines the transactions that were open in $3.
-- A step also reads index entries of rows above high that its transactions wrote, and skips them. If
-- the result has $9 rows, the step has another part.
--
-- Locks   none.
-- Index   outbox_xid_seq (xid, seq).
-- Called  by Term.Read and Log.Entries, if there are many rows up to high.
WITH late AS MATERIALIZED (
    SELECT xid, seq
    FROM (
        (SELECT o.xid, o.seq
         FROM pg_snapshot_xip($3::pg_snapshot) AS ended (xid)
         CROSS JOIN LATERAL (SELECT xid, seq FROM postroom.outbox o
                             WHERE (o.xid, o.seq) > (ended.xid, $2::bigint) AND (o.xid, o.seq) <= (ended.xid, $1::bigint)
                               AND (o.xid, o.seq) > ($7::bigint::text::xid8, $8::bigint)
                             ORDER BY o.xid, o.seq
                             LIMIT $9) o
         WHERE $5::bigint = pg_snapshot_xmax($3::pg_snapshot)::text::bigint
           AND pg_visible_in_snapshot(ended.xid, $4::pg_snapshot)
         ORDER BY o.xid, o.seq
         LIMIT $9)
        UNION ALL
        (SELECT o.xid, o.seq
         FROM (SELECT xid, seq FROM postroom.outbox
               WHERE xid >= $5::bigint::text::xid8 AND xid < $6::bigint::text::xid8 AND seq <= $1::bigint AND seq > $2::bigint
                 AND (xid, seq) > ($7::bigint::text::xid8, $8::bigint)
               ORDER BY xid, seq
               OFFSET 0) o
         --guard:the-search-by-transactions-ends-at-its-snapshot true
         WHERE pg_visible_in_snapshot(o.xid, $4::pg_snapshot)
         ORDER BY o.xid, o.seq
         LIMIT $9)
    ) both_kinds
    ORDER BY xid, seq
    LIMIT $9
)
SELECT coalesce(pg_catalog.range_agg(int8range(seq, seq, '[]')), '{}')::text AS late, count(*) AS rows,
       coalesce((SELECT xid::text::bigint FROM late ORDER BY xid DESC, seq DESC LIMIT 1), 0) AS last_xid,
       coalesce((SELECT seq FROM late ORDER BY xid DESC, seq DESC LIMIT 1), 0) AS last_seq
FROM late;
