-- The stream of ordered handler $1 does not have any more what it had, up to its
-- sequence $4: its reader, of epoch $2, begins behind sequence $3, of the message
-- with id $5 that was stored at $6, where one is known there. What it reads from
-- there stands behind everything that was read before.
--
-- Locks   the handler's row.
-- Index   the primary key; held_key_pos (handler, key, pos), as much as is held of the handler.
-- Called  by term.beginAt.
UPDATE postroom.subscription
SET base = greatest(base + $4::bigint, (SELECT max(pos) FROM postroom.held WHERE held.handler = $1 AND held.key IS NOT NULL)),
    floor = $3, floor_id = $5, floor_stored_at = $6, floor_at = now()
WHERE handler = $1 AND epoch = $2
RETURNING base;
