-- Record that handler $1 has to read its stream again, from the first message after sequence $3.
-- $2 is when that stream was created. If the floor is lower already, it stays. floor_at stays, too:
-- every message that the stream stored before floor_at was decided, or is above the new floor.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Lower.
UPDATE postroom.subscription
SET floor = $3
WHERE handler = $1 AND stream_created = $2 AND floor > $3;
