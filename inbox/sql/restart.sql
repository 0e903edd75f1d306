-- The stream of ordered handler $1 does not have any more what it had: its reader,
-- of epoch $2, begins behind sequence $3. What it reads from there stands behind
-- everything that it read before.
--
-- Locks   the handler's row.
-- Index   the primary key; held_key_pos (handler, key, pos).
-- Called  by term.restart.
UPDATE postroom.subscription
SET base = greatest(base + floor, (SELECT max(pos) FROM postroom.held WHERE held.handler = $1 AND held.key IS NOT NULL)),
    floor = $3, floor_id = NULL, floor_stored_at = NULL, floor_at = now()
WHERE handler = $1 AND epoch = $2
RETURNING base;
