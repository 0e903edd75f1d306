-- All rows that became visible since the snapshot of the previous pass, as
-- ranges of seq, and the snapshot of this statement.
--
-- $1 high   $2 floor   $3 snap, as in pass.sql, whose part 1 this is, "seq + 0"
-- included.
--
-- Used where late rows are more than a page (a bulk load that committed late)
-- and while such ranges are being worked off: newer rows wait meanwhile.
--
-- Locks   none.
-- Index   outbox_xid_seq (xid, seq).
-- Called  by Term.Read.
SELECT pg_current_snapshot()::text AS snap,
       pg_backend_pid()::text AS pid,
       (SELECT coalesce(range_agg(int8range(seq, seq, '[]')), '{}')
        FROM (
            SELECT seq FROM postroom.outbox
            WHERE xid = ANY (ARRAY(SELECT pg_snapshot_xip($3::pg_snapshot)))
              AND seq + 0 <= $1 AND seq + 0 > $2
            UNION ALL
            SELECT seq FROM postroom.outbox
            WHERE xid >= pg_snapshot_xmax($3::pg_snapshot) AND xid < pg_snapshot_xmax(pg_current_snapshot())
              AND seq + 0 <= $1 AND seq + 0 > $2
        ) late)::text AS late;
