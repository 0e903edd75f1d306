-- The held event $1, under the claim with epoch $2, gets the dedupe key $3, which its handler has made.
-- If no row is updated, another event with this key was decided, or another process has claimed the
-- event. If the statement is repeated because its answer was lost, it finds its own key.
--
-- Locks   the held row, and the new row of inbox.
-- Index   held_pkey (id), inbox's primary key.
-- Called  by Handler.Identify, before the event's handler.
WITH decided AS (
    INSERT INTO postroom.inbox (handler, dedupe_key)
    SELECT handler, $3::text FROM postroom.held WHERE id = $1 AND epoch = $2 AND dedupe_key <> $3::text
    ON CONFLICT (handler, dedupe_key) DO NOTHING
    RETURNING handler
)
UPDATE postroom.held SET dedupe_key = $3::text
--guard:an-identity-is-claimed-once 3 true
WHERE id = $1 AND epoch = $2 AND (dedupe_key = $3::text OR EXISTS (SELECT FROM decided));
