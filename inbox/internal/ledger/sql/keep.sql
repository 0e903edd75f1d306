-- Extend the lease of epoch $2 for reading the stream of ordered handler $1 by $3, or release
-- it if $3 is NULL. Record that everything up to message $4, with id $5 and stored at $6, is
-- decided. No row updated means that another process reads.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by Records.Keep.
UPDATE postroom.subscription
SET reader = CASE WHEN $3::interval IS NOT NULL THEN reader END, reader_until = now() + $3::interval,
    takeovers = CASE WHEN floor <> $4::bigint THEN 0 ELSE takeovers END,
    floor_at = CASE WHEN floor <> $4::bigint THEN now() ELSE floor_at END,
    floor = $4::bigint, floor_id = $5, floor_stored_at = $6
WHERE handler = $1 AND epoch = $2;
