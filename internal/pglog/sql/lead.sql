-- Take the relay's lease for owner $1, for the time $2, and read the state in the same
-- statement. It returns no row if another owner has the lease.
--
-- The epoch rises each time, even if the same owner takes the lease again. So the results of events
-- that a relay read under an older epoch can no longer be recorded.
--
-- The new epoch has to survive a crash of the server. Otherwise the next leader could get the same
-- epoch, and both leaders could record. So this commit waits for the disk; other commits of the
-- connection do not.
--
-- Locks   the one row of relay.
-- Index   none; one row.
-- Called  by Log.Lead.

--guard:taking-the-lease-waits-for-the-disk 1 = @2
WITH durable AS (SELECT set_config('synchronous_commit', 'on', true) AS setting)
UPDATE postroom.relay
SET epoch = epoch + 1,
    owner = $1,
    expires_at = clock_timestamp() + $2::interval, lease = $2::interval,
    timeline = greatest((SELECT timeline_id FROM pg_control_checkpoint()), (SELECT min_recovery_end_timeline FROM pg_control_recovery())) -- the second is the newer one until the first checkpoint after a promotion
FROM durable
WHERE durable.setting = 'on' AND (expires_at < clock_timestamp() OR owner = $1)
RETURNING epoch, high, floor, snap::text, pending::text,
    cluster <> (SELECT system_identifier FROM pg_control_system()) AS restored,
    (SELECT id::text FROM postroom.instance) AS instance, streams,
    coalesce(catch_up_snap::text, '') AS catch_up_snap, catch_up_passed, catch_up_open::text AS catch_up_open;
