-- Insert the effect of one event.
--
-- Locks   the new row.
-- Called  by handlers, in the transaction of their event.
INSERT INTO postroom.effects (order_key, amount) VALUES ($1, $2);
