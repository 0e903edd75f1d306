-- Note that handler $1 has to begin again behind sequence $3, or before, of the stream
-- that was created at $2. When the floor was last reached stays: what the stream got
-- before that was decided, or is above the floor.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Lower.
UPDATE postroom.subscription
SET floor = $3
WHERE handler = $1 AND stream_created = $2 AND floor > $3;
