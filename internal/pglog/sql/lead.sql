-- Take the relay's lease for owner $1, for $2, and read what is published in
-- the same statement. No row: another owner holds it.
--
-- The epoch rises each time, also where the same owner takes it again: whatever
-- was remembered under an older epoch can no longer be recorded.
--
-- The term has to survive a crash of the server: two leaders with one epoch could
-- both record. So this commit waits for the disk, where those of the connection
-- otherwise do not.
--
-- Locks   the one row of relay.
-- Index   none; one row.
-- Called  by Log.Lead.
WITH durable AS (SELECT set_config('synchronous_commit', 'on', true) AS setting)
UPDATE postroom.relay
SET epoch = epoch + 1,
    owner = $1,
    expires_at = clock_timestamp() + $2::interval
FROM durable
WHERE durable.setting = 'on' AND (expires_at < clock_timestamp() OR owner = $1)
RETURNING epoch, high, floor, snap::text, pending::text,
    cluster <> (SELECT system_identifier FROM pg_control_system()) AS restored,
    (SELECT id::text FROM postroom.instance) AS instance, streams;
