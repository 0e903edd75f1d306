-- Keep the answer to key $1.
--
-- Locks   the row.
-- Index   the primary key.
-- Called  by endpoint.byHand.
UPDATE postroom.key_by_hand SET status = $2, body = $3 WHERE key = $1;
