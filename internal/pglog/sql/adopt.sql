-- Adopt a log that was restored into another cluster, as the leader of epoch $1.
--
-- The rows kept their transaction ids, which mean nothing in this cluster. The old snapshot is
-- still useful for one thing: rows up to high that are not visible in it were never published. The
-- statement adds these rows to pending. Usually the new floor is high. But if rows above high have
-- transaction ids that this cluster has not reached yet, the new floor is the highest seq of these
-- rows. From then on the relay does not search rows up to floor by transaction id. It gets rows
-- between high and floor with the pages that it reads. Rows that are written in this cluster get
-- seqs above floor, because sequence.sql checks that the sequence is not behind.
--
-- If a relay was catching up with a long backlog, the statement ends that, and adds to pending only
-- what is left of the backlog.
--
-- Locks   the one row of relay.
-- Index   outbox_xid_seq (xid, seq), outbox_pkey (seq). It may read the index entries of
--         all rows, once after a restore; it fetches only the rows that it looks for.
-- Called  by Log.Lead.
UPDATE postroom.relay AS r
SET pending = CASE WHEN r.catch_up_snap::text = r.snap::text THEN r.pending - int8multirange(int8range(NULL, r.catch_up_passed, '[]')) + r.catch_up_open
                   ELSE r.pending END + coalesce((
        SELECT range_agg(int8range(late.seq, late.seq, '[]'))
        FROM (
            SELECT o.xid, o.seq
            FROM pg_snapshot_xip(r.snap) AS ended (xid)
            CROSS JOIN LATERAL (SELECT xid, seq FROM postroom.outbox o
                                WHERE (o.xid, o.seq) > (ended.xid, r.floor) AND (o.xid, o.seq) <= (ended.xid, r.high)
                                ORDER BY o.xid, o.seq
                                OFFSET 0) o
            UNION ALL
            (SELECT xid, seq FROM postroom.outbox
             WHERE xid >= pg_snapshot_xmax(r.snap) AND seq <= r.high AND seq > r.floor
             ORDER BY xid, seq
             OFFSET 0)
        ) late
        --guard:an-adopted-log-keeps-what-was-caught-up 1 true
        WHERE r.catch_up_snap IS NULL OR late.seq > r.catch_up_passed OR NOT pg_visible_in_snapshot(late.xid, r.catch_up_snap)), '{}'),
    catch_up_snap = NULL, catch_up_passed = 0, catch_up_open = '{}',
    floor = greatest(r.high, (
        SELECT o.seq FROM postroom.outbox o
        WHERE o.seq > r.high AND NOT pg_visible_in_snapshot(o.xid, pg_current_snapshot())
          AND EXISTS (SELECT FROM postroom.outbox WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())) -- if there is no such row, no row has an id that this cluster has not reached
        ORDER BY o.seq DESC
        LIMIT 1)),
    snap = pg_current_snapshot(),
    cluster = (SELECT system_identifier FROM pg_control_system())
WHERE r.epoch = $1
RETURNING r.epoch, r.high, r.floor, r.snap::text, r.pending::text, false AS restored,
    (SELECT id::text FROM postroom.instance) AS instance, streams,
    '' AS catch_up_snap, catch_up_passed, catch_up_open::text AS catch_up_open;
