-- Make the lease of epoch $1 last for $2 from now, and record nothing.
--
-- Locks   the one row of relay.
-- Index   none; one row.
-- Called  by Term.Renew, by Term.Record if there is nothing to record, and by Log.Lead after it adopted a restored log.
UPDATE postroom.relay
SET expires_at = clock_timestamp() + $2::interval, lease = $2::interval
WHERE epoch = $1;
