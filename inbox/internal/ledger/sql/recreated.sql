-- The stream of handler $1 was deleted and made again at $2: begin behind its
-- sequence $3. What an ordered handler reads from there stands behind everything
-- that it read before, and whoever reads for it now does so no longer.
--
-- Locks   the handler's row.
-- Index   the primary key; held_key_pos (handler, key, pos).
-- Called  by Records.Subscribe.
UPDATE postroom.subscription
SET stream_created = $2, base = greatest(base + floor, (SELECT max(pos) FROM postroom.held WHERE held.handler = $1 AND held.key IS NOT NULL)),
    floor = $3, floor_id = NULL, floor_stored_at = NULL, floor_at = now(), backfill_through = 0,
    epoch = epoch + 1, reader = NULL, reader_until = NULL
WHERE handler = $1 AND stream_created <> $2;
