-- Empty the tables to which requests write.
--
-- Locks   the tables.
-- Called  by openEndpoint.
TRUNCATE postroom.outbox, postroom.orders, postroom.entry, postroom.idempotency, postroom.key_by_hand,
         postroom.webhook_by_hand, postroom.process_by_hand, postroom.saga, postroom.saga_step, postroom.inbox, postroom.held, postroom.receipt CASCADE;
