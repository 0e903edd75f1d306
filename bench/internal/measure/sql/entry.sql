-- The entry that a request makes in the ledger.
--
-- Locks   the new row.
-- Called  by endpoint.order.
INSERT INTO postroom.entry (account, amount) VALUES ($1, $2);
