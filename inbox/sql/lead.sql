-- Take the lease on reading the stream of ordered handler $1, for process $2 and
-- for $3. No row: another process reads. A reader before that ended without a word
-- is counted for as long as the floor does not move.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by consumer.lead.
UPDATE postroom.subscription
SET epoch = epoch + 1, reader = $2, reader_until = now() + $3::interval,
    takeovers = CASE WHEN reader IS NULL OR reader = $2 THEN 0 ELSE takeovers + 1 END
WHERE handler = $1 AND (reader IS NULL OR reader = $2 OR reader_until <= now())
RETURNING epoch, base, floor, floor_id, floor_stored_at, takeovers, current_setting('default_transaction_isolation');
