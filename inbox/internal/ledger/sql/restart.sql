-- The stream of ordered handler $1 lost or dropped messages. Record that the handler's reader with
-- epoch $2 begins again after sequence $3. The message at $3 has id $5 and was stored at $6, if
-- these are known. The events that the reader reads from now on get places after those of all held
-- events and of all sequences up to $4. If the floor becomes lower, the handler decided events above
-- the new floor, and their inbox rows may have expired. So the limit of age then applies to all
-- events. The statement also returns the sequence up to which an event may be of any age. As in
-- keep.sql, no row means that the term is over.
--
-- Locks   the handler's row.
-- Index   the primary key; held_chain_pos (handler, chain, pos), as many entries as the handler has held events.
-- Called  by Records.Restart.
UPDATE postroom.subscription
SET base = greatest(base + $4::bigint, (SELECT max(pos) FROM postroom.held WHERE held.handler = $1 AND held.chain IS NOT NULL)),
    floor = $3, floor_id = $5, floor_stored_at = $6, floor_at = now(),
    --guard:a-restart-ends-the-exemption-of-the-backfill 2 = @3
    backfill_through = CASE WHEN floor > $3 THEN 0 ELSE backfill_through END
WHERE handler = $1 AND epoch = $2 AND floor_server = pg_postmaster_start_time()
RETURNING base, backfill_through;
