-- The sources of events with id $1 of which something is left elsewhere than in the
-- log: in replays and in the audit.
--
-- Locks   none.
-- Index   job_item_event (event_id), audit_event (event_id).
-- Called  by Inspector.Event, where no source is given.
SELECT source FROM (SELECT source FROM postroom.job_item WHERE event_id = $1::text LIMIT 100) i
UNION
SELECT source FROM (SELECT source FROM postroom.audit WHERE event_id = $1::text AND source IS NOT NULL LIMIT 100) a;
