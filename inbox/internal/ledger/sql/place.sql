-- Return the recorded floor of handler $1 in the stream that was created at $2, up to which sequence
-- the handler has skipped messages of subjects that were added, when the server started that
-- recorded the floor, and when this server started. After the crash of one of its processes, a server
-- begins again in the same postmaster, and may have lost transactions. Then it has forgotten its
-- statistics. Also return whether the floor was recorded within the last $3. A time that lies ahead
-- does not count: a clock was wrong when it was written.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by Records.Place.
SELECT floor, skipped_through, floor_server,
       --guard:a-server-that-crashed-began-again 2 remove
       greatest(pg_postmaster_start_time(), pg_stat_get_bgwriter_stat_reset_time()),
       --guard:a-floor-from-the-future-is-not-recent 2 true
       floor_at > now() - $3::interval AND floor_at < now() + interval '1 minute'
FROM postroom.subscription
WHERE handler = $1 AND stream_created = $2;
