-- Empty what requests write to.
--
-- Locks   the tables.
-- Called  by openEndpoint.
TRUNCATE postroom.outbox, postroom.orders, postroom.entry, postroom.idempotency, postroom.key_by_hand,
         postroom.webhook_by_hand, postroom.inbox, postroom.held, postroom.receipt CASCADE;
