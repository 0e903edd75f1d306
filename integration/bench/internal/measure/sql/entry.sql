-- Insert the ledger entry of a request.
--
-- Locks   the new row.
-- Called  by endpoint.pay.
INSERT INTO postroom.entry (account, amount) VALUES ($1, $2);
