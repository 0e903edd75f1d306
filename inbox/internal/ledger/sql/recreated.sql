-- Record that the stream of handler $1 was deleted and created again at $2, and that the handler
-- begins after sequence $3 of the new stream. For an ordered handler, the places of events that it
-- reads from now on come after all earlier places. If a process reads the stream now, its term
-- ends.
--
-- Locks   the handler's row.
-- Index   the primary key; held_chain_pos (handler, chain, pos).
-- Called  by Records.Recreate.
UPDATE postroom.subscription
SET stream_created = $2, base = greatest(base + floor, (SELECT max(pos) FROM postroom.held WHERE held.handler = $1 AND held.chain IS NOT NULL)),
    floor = $3, floor_id = NULL, floor_stored_at = NULL, floor_at = now(), backfill_through = 0, skipped_through = 0,
    epoch = epoch + 1, reader = NULL, reader_until = NULL
WHERE handler = $1 AND stream_created <> $2;
