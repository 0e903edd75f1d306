-- Record that handler $1 has decided everything up to sequence $3 of the stream that was created at
-- $2. The caller knows this only for the floor $4 and for the server that started at $5: if another
-- process has recorded another floor, or if the server was restarted or replaced since the caller
-- asked, nothing is recorded. The message at sequence $3 is not known, so the columns with its id
-- and its time are cleared.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Raise.
UPDATE postroom.subscription
--guard:a-floor-forgets-its-message 3,4 remove
SET floor = $3, floor_at = now(), floor_id = NULL, floor_stored_at = NULL, floor_server = $5
--guard:a-floor-is-of-one-server 4 true
WHERE handler = $1 AND stream_created = $2 AND floor = $4 AND greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()) = $5;
