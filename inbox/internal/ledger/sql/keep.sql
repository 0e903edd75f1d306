-- Renew the lease with epoch $2 to read the stream of ordered handler $1: it ends $3 from now. If
-- $3 is NULL, release the lease. Record that everything up to the message with sequence $4, id $5
-- and time of storage $6 is decided. If no row is updated, the term with epoch $2 is over. It is
-- also over if the server was restarted or replaced since the lease was taken: the server may have
-- lost transactions, so what the reader remembers may be decided no longer.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Keep.
UPDATE postroom.subscription
SET reader = CASE WHEN $3::interval IS NOT NULL THEN reader END, reader_until = now() + $3::interval,
    takeovers = CASE WHEN floor <> $4::bigint THEN 0 ELSE takeovers END,
    floor_at = CASE WHEN floor <> $4::bigint THEN now() ELSE floor_at END,
    floor = $4::bigint, floor_id = $5, floor_stored_at = $6
--guard:a-term-ends-with-its-server 3 true
WHERE handler = $1 AND epoch = $2 AND floor_server = pg_postmaster_start_time();
