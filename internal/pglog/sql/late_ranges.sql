-- The seqs of all late rows, as ranges, and the snapshot of this statement. A row with seq > $2 and
-- <= $1 is late if it became visible since $3: the snapshot of the previous run of pass.sql, or of
-- this statement if it ran since then.
--
-- $1 high   $2 floor   $3 snap, as in pass.sql. This statement searches as part 1 of pass.sql does.
--
-- If there are more late rows than fit into a page (after a bulk load that committed late), the
-- reader uses this statement until it has read all of them. Newer rows wait meanwhile.
--
-- Locks   none.
-- Index   outbox_xid_seq (xid, seq).
-- Called  by Term.Read.
SELECT pg_current_snapshot()::text AS snap,
       pg_backend_pid()::text AS pid,
       (SELECT coalesce(range_agg(int8range(seq, seq, '[]')), '{}')
        FROM (
            SELECT o.seq
            FROM pg_snapshot_xip($3::pg_snapshot) AS ended (xid)
            CROSS JOIN LATERAL (SELECT seq FROM postroom.outbox o
                                WHERE (o.xid, o.seq) > (ended.xid, $2) AND (o.xid, o.seq) <= (ended.xid, $1)
                                ORDER BY o.xid, o.seq
                                OFFSET 0) o
            WHERE pg_visible_in_snapshot(ended.xid, pg_current_snapshot())
            UNION ALL
            (SELECT seq FROM postroom.outbox
             WHERE xid >= pg_snapshot_xmax($3::pg_snapshot) AND xid < pg_snapshot_xmax(pg_current_snapshot())
               AND seq <= $1 AND seq > $2
             ORDER BY xid, seq
             OFFSET 0)
        ) late)::text AS late;
