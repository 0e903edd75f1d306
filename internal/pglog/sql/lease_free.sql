-- Whether owner $1 could take the relay's lease now. A standby asks this twice a second;
-- lead.sql decides.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Log.Lead.
SELECT expires_at < clock_timestamp() OR coalesce(owner = $1, false)
FROM postroom.relay;
