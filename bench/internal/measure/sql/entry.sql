-- The entry that a request makes in the ledger.
--
-- Locks   the new row.
-- Called  by openEndpoint.
INSERT INTO postroom.entry (account, amount) VALUES ($1, $2);
