-- Take the lease to read the stream of ordered handler $1, for process $2 and for time $3. No row
-- means that another process reads. A lease that ends later than a lease can does not count: the
-- clock was set back after it was renewed. If its reader lives, it reads no longer, because its epoch
-- is over. The statement counts how many readers in a row ended without
-- releasing their lease and without moving the floor. It also returns the subjects, because another
-- process may have added some. And it returns the highest place that a held event has in its key.
-- The handler may have decided events above the floor. If rows of the handler have expired, perhaps
-- theirs have, so the limit of age then applies to all events.
--
-- Locks   the handler's row.
-- Index   the primary keys of subscription and dedupe_window; held_chain_pos (handler, chain, pos), as many entries as the handler has held events.
-- Called  by Records.Lead.
UPDATE postroom.subscription
SET epoch = epoch + 1, reader = $2, reader_until = now() + $3::interval,
    floor_server = pg_postmaster_start_time(),
    backfill_through = CASE
        --guard:the-next-reader-exempts-no-decided-event false
        WHEN EXISTS (SELECT FROM postroom.dedupe_window w WHERE w.handler = $1 AND w.expired_before IS NOT NULL) THEN 0
        ELSE backfill_through END,
    takeovers = CASE WHEN reader IS NULL OR reader = $2 THEN 0 ELSE takeovers + 1 END
WHERE handler = $1 AND (reader IS NULL OR reader = $2 OR reader_until <= now()
                        --guard:a-reader-cannot-lead-longer-than-it-can false
                        OR isfinite(reader_until) AND reader_until > now() + $3::interval + $3::interval)
RETURNING epoch, base, floor, floor_id, floor_stored_at, subjects, takeovers,
          (SELECT coalesce(max(pos), 0) FROM postroom.held WHERE held.handler = $1 AND held.chain IS NOT NULL),
          backfill_through;
