-- Adopt a log that was restored into another cluster, as the leader of epoch $1.
--
-- The rows kept their transaction ids, which mean nothing here. What the old
-- snapshot says is still true of them once: rows up to high that are not visible
-- in it were never published, and go to pending. From then on rows up to high
-- are not looked for by transaction id (floor), nor are those above high whose id
-- is still to come in this cluster: they are read with their page. Rows written
-- here have higher seqs, because the sequence is not behind; sequence.sql sees to
-- that.
--
-- Locks   the one row of relay.
-- Index   none: reads the log once, after a restore.
-- Called  by Log.Lead.
UPDATE postroom.relay AS r
SET pending = r.pending + coalesce((
        SELECT range_agg(int8range(o.seq, o.seq, '[]'))
        FROM postroom.outbox o
        WHERE o.seq <= r.high AND o.seq > r.floor
          AND NOT pg_visible_in_snapshot(o.xid, r.snap)), '{}'),
    floor = greatest(r.high, (SELECT max(o.seq) FROM postroom.outbox o
                              WHERE o.seq > r.high AND NOT pg_visible_in_snapshot(o.xid, pg_current_snapshot()))),
    snap = pg_current_snapshot(),
    cluster = (SELECT system_identifier FROM pg_control_system())
WHERE r.epoch = $1
RETURNING r.epoch, r.high, r.floor, r.snap::text, r.pending::text, false AS restored,
    (SELECT id::text FROM postroom.instance) AS instance, streams;
