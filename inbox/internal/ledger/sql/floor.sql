-- Record that handler $1 has decided everything up to sequence $3 of the stream that was
-- created at $2. The message at that sequence is not known, so the columns with its id and its time
-- are cleared.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Raise.
UPDATE postroom.subscription
--guard:a-floor-forgets-its-message 3,4 remove
SET floor = $3, floor_at = now(), floor_id = NULL, floor_stored_at = NULL
WHERE handler = $1 AND stream_created = $2 AND floor < $3;
