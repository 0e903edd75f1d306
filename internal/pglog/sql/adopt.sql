-- Adopt a log that comes from another server, as the leader of epoch $1. It returns no row if the log
-- does not come from another server, or if another epoch began.
--
-- The row of relay shows that the log was moved if it has another system identifier, or a snapshot
-- with transaction ids that this server has not reached. A dump that is restored, and logical
-- replication, copy such ids. A physical copy of a server has the same system identifier, so only the
-- ids show that rows were copied into it later. If a relay led here since, the snapshot is of this
-- server. Then rows above floor with ids that this server has not reached show the move: no pass
-- would find them before the server reaches these ids. The newest 1,000 of these ids are examined.
--
-- The rows kept their transaction ids, which mean nothing here. The old snapshot is
-- still useful for one thing: rows up to high that are not visible in it were never published. The
-- statement adds these rows to pending. Usually the new floor is high. But if rows above high have
-- transaction ids that this server has not reached yet, the new floor is the highest seq of these
-- rows. From then on the relay does not search rows up to floor by transaction id. It gets rows
-- between high and floor with the pages that it reads. Rows that are written here get
-- seqs above floor, because sequence.sql checks that the sequence is not behind.
--
-- If the snapshot is of this server, transactions that are open here may have rows up to high. So the
-- new floor is the highest seq of the rows with ids that the server has not reached. Events that
-- another server's relay published may be published again: the snapshot does not show which these are.
--
-- A checkpoint also has a snapshot of the other server. With it, no comparison would find the late rows
-- that became visible since. So the statement removes the positions of the checkpoints: until the next
-- checkpoint, a repair compares the complete log.
--
-- If a relay was catching up with a long backlog, the statement ends that, and adds to pending only
-- what is left of the backlog.
--
-- Once after a move, the statement may write a pending as long as the log. No relay leads
-- meanwhile, and the lease begins only when the statement has ended. No recording writes that list
-- again, because the relay catches up with it, and no checkpoint copies it.
--
-- Locks   the one row of relay, then the rows of relay_checkpoint.
-- Index   outbox_xid_seq (xid, seq), outbox_pkey (seq). It may read the index entries of
--         all rows, once after a move; it fetches only the rows that it looks for.
-- Called  by Log.Lead.
WITH adopted AS (
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
        --guard:open-transactions-of-this-server-are-above-the-floor 2.1 true
        floor = CASE WHEN r.cluster <> (SELECT system_identifier FROM pg_control_system()) OR pg_snapshot_xmax(r.snap) > pg_snapshot_xmax(pg_current_snapshot())
                     THEN greatest(r.high, (
                         SELECT o.seq FROM postroom.outbox o
                         WHERE o.seq > r.high AND NOT pg_visible_in_snapshot(o.xid, pg_current_snapshot())
                           AND EXISTS (SELECT FROM postroom.outbox WHERE xid >= pg_snapshot_xmin(pg_current_snapshot())) -- if there is no such row, no row has an id that this server has not reached
                         ORDER BY o.seq DESC
                         LIMIT 1))
                     ELSE (SELECT max(seq) FROM postroom.outbox WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())) END,
        snap = pg_current_snapshot(),
        cluster = (SELECT system_identifier FROM pg_control_system())
    WHERE r.epoch = $1
      AND (r.cluster <> (SELECT system_identifier FROM pg_control_system())
           --guard:a-log-of-a-server-that-is-ahead-is-adopted false
           OR pg_snapshot_xmax(r.snap) > pg_snapshot_xmax(pg_current_snapshot())
           --guard:rows-of-a-server-that-is-ahead-are-adopted false
           OR EXISTS (SELECT FROM (SELECT seq FROM postroom.outbox WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
                                   ORDER BY xid DESC, seq DESC LIMIT 1000) ahead
                      WHERE ahead.seq > r.floor))
    RETURNING r.epoch, r.high, r.floor, r.snap::text, r.pending::text, false AS restored,
        (SELECT id::text FROM postroom.instance) AS instance, streams,
        '' AS catch_up_snap, catch_up_passed, catch_up_open::text AS catch_up_open
), unusable AS (
    UPDATE postroom.relay_checkpoint SET streams = '{}'
    --guard:checkpoints-of-another-server-are-not-used false
    WHERE EXISTS (SELECT FROM adopted)
)
SELECT * FROM adopted;
