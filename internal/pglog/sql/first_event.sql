-- The first event of the log from seq $1 on, and when it was written.
--
-- Locks   none.
-- Index   outbox_pkey (seq).
-- Called  by Log.FirstFrom, Log.FirstAfter and Log.Entries.
SELECT seq, created_at FROM postroom.outbox WHERE seq >= $1 ORDER BY seq LIMIT 1;
