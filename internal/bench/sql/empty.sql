-- Empty the tables that producers write to. The sequence goes on: the relay's
-- high stays below it.
--
-- Locks   both tables.
-- Called  by bench.empty.
TRUNCATE postroom.outbox, postroom.orders;
