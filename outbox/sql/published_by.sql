-- What the state calls published now, and which events below the high of mark $1 may
-- have been published after it: those that its state did not call so, and those that
-- were held then. No mark (0): all that the log has, from its first row on.
--
-- Locks   none.
-- Index   outbox_xid_seq (xid, seq) from the oldest transaction of the mark's snapshot on.
-- Called  by Log.Published.
WITH mark AS (
    SELECT high, floor, snap, pending FROM postroom.relay_mark WHERE id = $1
)
SELECT r.high, r.floor, r.snap::text AS snap, r.pending::text AS pending,
       coalesce((SELECT high FROM mark), 0) AS above,
       (SELECT coalesce((SELECT pending FROM mark), '{}')
            + coalesce((SELECT range_agg(s) FROM postroom.relay_mark m, unnest(m.settled) s WHERE m.id >= $1 AND EXISTS (SELECT FROM mark)), '{}')
            + coalesce((SELECT range_agg(int8range(o.seq, o.seq, '[]'))
                        FROM postroom.outbox o, mark
                        WHERE o.xid >= pg_snapshot_xmin(mark.snap) AND NOT pg_visible_in_snapshot(o.xid, mark.snap)
                          AND o.seq + 0 <= mark.high AND o.seq + 0 > mark.floor), '{}'))::text AS others
FROM postroom.relay r;
