-- Record that handler $1 has decided everything up to sequence $3 of the stream that was
-- created at $2.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Raise.
UPDATE postroom.subscription
SET floor = $3, floor_at = now()
WHERE handler = $1 AND stream_created = $2 AND floor < $3;
