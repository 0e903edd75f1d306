-- Whether owner $1 could take the relay's lease now. A relay on standby asks this at least twice a
-- second. If the answer is yes, it runs lead.sql, which checks the lease again.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Log.Lead.
SELECT expires_at < clock_timestamp() OR coalesce(owner = $1, false)
FROM postroom.relay;
