-- Record that handler $1 got another subject when its consumer had delivered the messages up to
-- sequence $3 of the stream that was created at $2. The handler has skipped the messages of that
-- subject up to there.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Skip.
UPDATE postroom.subscription
SET skipped_through = greatest(skipped_through, $3)
WHERE handler = $1 AND stream_created = $2;
