-- Take the lease on reading the stream of ordered handler $1, for process $2 and
-- for $3. No row: another process reads. A reader before that ended without a word
-- is counted for as long as the floor does not move. Returns also the subjects, which
-- may have grown since this process stood by, and the last place in which an event
-- waits or blocks.
--
-- Locks   the handler's row.
-- Index   the primary key; held_key_pos (handler, key, pos), as much as is held of the handler.
-- Called  by Records.Lead.
UPDATE postroom.subscription
SET epoch = epoch + 1, reader = $2, reader_until = now() + $3::interval,
    takeovers = CASE WHEN reader IS NULL OR reader = $2 THEN 0 ELSE takeovers + 1 END
WHERE handler = $1 AND (reader IS NULL OR reader = $2 OR reader_until <= now())
RETURNING epoch, base, floor, floor_id, floor_stored_at, subjects, takeovers,
          (SELECT coalesce(max(pos), 0) FROM postroom.held WHERE held.handler = $1 AND held.key IS NOT NULL);
