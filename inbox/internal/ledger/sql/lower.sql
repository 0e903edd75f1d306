-- Record that handler $1 has to read again from after sequence $3, or from earlier, in the stream
-- that was created at $2. floor_at stays: all messages that the stream stored before that time
-- were decided, or are above the floor.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Lower.
UPDATE postroom.subscription
SET floor = $3
WHERE handler = $1 AND stream_created = $2 AND floor > $3;
