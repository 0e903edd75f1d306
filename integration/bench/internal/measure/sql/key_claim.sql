-- Claim key $1 for a request whose digest is $2.
--
-- Locks   the new row; waits for a transaction that inserts the same key.
-- Index   the primary key.
-- Called  by endpoint.byHand.
INSERT INTO postroom.key_by_hand (key, request, expires_at) VALUES ($1, $2, now() + interval '1 day')
ON CONFLICT DO NOTHING;
