-- The reader of ordered handler $1 with epoch $2 found no event to read. So no event can have ended
-- the readers before it.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Pardon.
UPDATE postroom.subscription SET takeovers = 0 WHERE handler = $1 AND epoch = $2;
