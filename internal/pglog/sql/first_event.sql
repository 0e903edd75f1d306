-- The first event of the log from seq $1 on, and when it was written. The statement skips events
-- whose time is in the future or outside the years 1 to 9999: the clock was wrong, or the owner of
-- the table wrote the time. A binary search that stopped at such an event would miss later events.
--
-- Locks   none.
-- Index   outbox_pkey (seq).
-- Called  by Reach.FirstFrom, Reach.FirstAfter and Log.Entries.

--guard:times-in-the-future-hide-no-events 2 = @1 IS NOT NULL
SELECT seq, created_at FROM postroom.outbox WHERE seq >= $1 AND postroom.clamped(created_at) <= clock_timestamp() + interval '1 min' ORDER BY seq LIMIT 1;
