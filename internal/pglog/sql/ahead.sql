-- Whether the log has rows above floor with transaction ids that this server has not reached. Such rows
-- come from another server: see adopt.sql. The newest 1,000 of these ids are examined.
--
-- sequence.sql does not include this, because it must name row-level security before any statement
-- reads the log.
--
-- Locks   none.
-- Index   outbox_xid_seq (xid, seq): at most 1,000 entries, and none if the log is of this server.
-- Called  by Log.Check and Log.Lead.
SELECT EXISTS (
    SELECT FROM postroom.relay r,
                (SELECT seq FROM postroom.outbox WHERE xid >= pg_snapshot_xmax(pg_current_snapshot())
                 ORDER BY xid DESC, seq DESC LIMIT 1000) ahead
    WHERE ahead.seq > r.floor) AS ahead;
