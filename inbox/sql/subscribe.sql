-- Note that handler $1 reads stream $2, which was created at $3, the event types
-- $4 (NULL: whatever is on its subjects); a new row begins behind sequence $5,
-- and what the stream has up to sequence $6 may be of any age. Types are added,
-- never removed: a process of another version may ask for them.
--
-- Locks   the handler's row.
-- Index   the primary key.
-- Called  by consumer.subscribe.
INSERT INTO postroom.subscription AS s (handler, stream, stream_created, types, floor, backfill_through)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (handler) DO UPDATE
SET types = CASE WHEN s.types IS NOT NULL AND excluded.types IS NOT NULL
                 THEN ARRAY(SELECT DISTINCT unnest(s.types || excluded.types) ORDER BY 1) END
RETURNING stream, stream_created, types, floor, backfill_through, created_at > now() - interval '1 minute' AS is_new;
