-- Store webhook $1 of type $2 with body $3. If the table has its id already, do nothing.
--
-- Locks   the new row; waits for a transaction that inserts the same id.
-- Index   the primary key.
-- Called  by ByHand and Keep.
INSERT INTO postroom.webhook_by_hand (id, type, body) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING;
