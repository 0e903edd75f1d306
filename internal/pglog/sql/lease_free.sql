-- Whether owner $1 could take the relay's lease now. A relay on standby asks this at least twice a
-- second. If the answer is yes, it runs lead.sql, which checks the lease again.
--
-- If the clock was set back after the lease was renewed, the lease would last until the clock shows
-- that time again. So the statement makes such a lease end as if it had been renewed now, and says
-- so. If the leader lives, it renews the lease before.
--
-- Locks   the one row of relay, only if it changes the lease.
-- Index   none; one row.
-- Called  by Log.Lead.
WITH shortened AS (
    UPDATE postroom.relay
    SET expires_at = clock_timestamp() + lease
    --guard:a-lease-cannot-end-later-than-it-can false
    WHERE lease > '0' AND expires_at > clock_timestamp() + lease + interval '1 second'
    RETURNING true
)
SELECT expires_at < clock_timestamp() OR coalesce(owner = $1, false), EXISTS (SELECT FROM shortened)
FROM postroom.relay;
