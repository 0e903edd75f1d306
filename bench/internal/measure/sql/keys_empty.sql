-- Empty what requests write to.
--
-- Locks   the tables.
-- Called  by bench.endpoint.
TRUNCATE postroom.outbox, postroom.orders, postroom.entry, postroom.idempotency, postroom.key_by_hand;
