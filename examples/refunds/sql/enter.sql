-- An entry in the ledger: movement $1 takes $4 from account $2 to account $3.
--
-- Locks   the new row.
-- Index   its primary key.
-- Called  by service.settle.
INSERT INTO ledger (movement_id, debit, credit, amount) VALUES ($1, $2, $3, $4);
