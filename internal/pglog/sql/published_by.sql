-- What the state calls published now, and what mark $1 says of events up to its high:
-- those that it did not call published, and those that were published from held since.
-- What was not visible in its snapshot is late_by_xid.sql's and late_by_seq.sql's to
-- find. No mark (0): all that the log has, from its first row on.
--
-- Locks   none.
-- Index   relay_mark_pkey (id): marks are few.
-- Called  by Log.Published.
WITH mark AS (
    SELECT high, floor, snap, pending FROM postroom.relay_mark WHERE id = $1
)
SELECT r.high, r.floor, r.snap::text AS snap, r.pending::text AS pending,
       coalesce(mark.high, 0) AS above, coalesce(mark.floor, 0) AS above_floor, mark.snap::text AS above_snap,
       (coalesce(mark.pending, '{}')
            + coalesce((SELECT range_agg(s) FROM postroom.relay_mark m, unnest(m.settled) s
                        WHERE m.id >= $1 AND EXISTS (SELECT FROM mark)), '{}'))::text AS others
FROM postroom.relay r
LEFT JOIN mark ON true;
