-- The state from which Log.Entries knows what is published now, and the high, floor and snap of
-- checkpoint $1. The column others has the events that were pending in the checkpoint, and those
-- that were published from held, or again, since. late_by_xid.sql or late_by_seq.sql finds the events that
-- were not visible in the checkpoint's snapshot. If $1 is 0, there is no checkpoint, and
-- Log.Entries reads all events of the log from the first row on.
--
-- The column late has the events of republishes that were ordered because a comparison found that a
-- stream lacked them.
--
-- Besides new events, the relay may now be publishing events of republishes and of held. So the
-- statement also returns how far the running republishes are, and the id of the newest republish.
-- It returns the newest checkpoint too, with the events that note_published.sql has added to it so
-- far.
--
-- If the relay catches up with a long backlog, caught_up_snap and caught_up say which of its late
-- events it has read: those up to this seq that are visible in this snapshot. The column pending has
-- those of them that are not published. If the backlog is pending, the column pending has what is left
-- of it.
--
-- Locks   none.
-- Index   relay_checkpoint_pkey (id): there are few. republish_running (id), republish_pkey (id),
--         outbox_pkey (seq); of republish, all rows are read: there are few.
-- Called  by Log.Entries.
WITH checkpoint AS (
    SELECT high, floor, snap, pending FROM postroom.relay_checkpoint WHERE id = $1
)
SELECT r.high, r.floor, r.snap::text AS snap,
       (CASE WHEN r.catch_up_snap::text = r.snap::text
             THEN r.pending OPERATOR(pg_catalog.-) int8multirange(int8range(NULL::bigint, r.catch_up_passed, '[]'::text)) OPERATOR(pg_catalog.+) r.catch_up_open
             ELSE r.pending END)::text AS pending,
       coalesce(r.catch_up_snap, r.snap)::text AS caught_up_snap, r.catch_up_passed AS caught_up,
       coalesce(checkpoint.high, 0) AS above, coalesce(checkpoint.floor, 0) AS above_floor, checkpoint.snap::text AS above_snap,
       (coalesce(checkpoint.pending, '{}')
            OPERATOR(pg_catalog.+) coalesce((SELECT pg_catalog.range_agg(s) FROM postroom.relay_checkpoint c, pg_catalog.unnest(c.published_held) s
                        WHERE c.id >= $1 AND EXISTS (SELECT FROM checkpoint)), '{}'))::text AS others,
       (SELECT coalesce(pg_catalog.range_agg(s), '{}') FROM postroom.republish w, pg_catalog.unnest(w.seqs) s
        WHERE w.kind = 'reconcile' AND w.hi >= (SELECT min(seq) FROM postroom.outbox))::text AS late,
       running.ids AS running, running.passed, running.pending AS running_pending,
       coalesce((SELECT max(id) FROM postroom.republish), 0) AS newest,
       coalesce(mark.id, 0) AS mark, coalesce(mark.published_held, '{}')::text AS noted
FROM postroom.relay r
CROSS JOIN (SELECT coalesce(pg_catalog.array_agg(id), '{}') AS ids, coalesce(pg_catalog.array_agg(passed), '{}') AS passed,
                   coalesce(pg_catalog.array_agg(pending::text), '{}') AS pending
            FROM postroom.republish WHERE state = 'running') running
LEFT JOIN checkpoint ON true
LEFT JOIN (SELECT id, published_held FROM postroom.relay_checkpoint ORDER BY id DESC LIMIT 1) mark ON true;
