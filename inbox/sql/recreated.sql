-- The stream of handler $1 was deleted and made again at $2: begin at its start.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by consumer.subscribe.
UPDATE postroom.subscription
SET stream_created = $2, floor = 0, floor_at = now(), backfill_through = 0
WHERE handler = $1 AND stream_created <> $2;
