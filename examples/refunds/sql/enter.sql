-- Insert an entry in the ledger: movement $1 moves $4 cents from account $2 to account $3.
--
-- Locks   the new row.
-- Index   its primary key.
-- Called  by service.settle.
INSERT INTO ledger (movement_id, debit, credit, amount) VALUES ($1, $2, $3, $4);
