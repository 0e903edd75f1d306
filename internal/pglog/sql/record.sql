-- Record what is published, as the leader of epoch $1, and keep the lease for
-- $6 more. $7 is where streams end. No row: another epoch began.
--
-- Where held changes too, its statements follow in the same transaction. Each of
-- them looks at the epoch for itself, and the row stays locked between them.
--
-- Locks   the one row of relay.
-- Index   none; one row.
-- Called  by Term.Record.
UPDATE postroom.relay
SET high = $2, floor = $3, snap = $4::pg_snapshot, pending = $5::int8multirange,
    expires_at = clock_timestamp() + $6::interval, streams = $7::jsonb
WHERE epoch = $1;
