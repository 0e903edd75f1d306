-- Whether epoch $1 is still the newest epoch.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Term.Confirm.
SELECT epoch = $1 FROM postroom.relay;
