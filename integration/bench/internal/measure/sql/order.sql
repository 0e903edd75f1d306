-- Insert the order of one transaction.
--
-- Locks   the new row.
-- Called  by producers.
INSERT INTO postroom.orders (customer, amount) VALUES ($1, $2);
