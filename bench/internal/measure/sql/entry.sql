-- Insert the ledger entry of a request.
--
-- Locks   the new row.
-- Called  by openEndpoint.
INSERT INTO postroom.entry (account, amount) VALUES ($1, $2);
