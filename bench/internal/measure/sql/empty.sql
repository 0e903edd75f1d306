-- Empty the tables that producers write to. The sequence is not reset, so the relay's high
-- stays below it. Events that the last relay did not publish are removed, too: the stream of
-- that measurement does not exist any longer.
--
-- Locks   the three tables, and the one row of relay.
-- Called  by servers.empty.
TRUNCATE postroom.outbox, postroom.orders, postroom.outbox_by_hand;
UPDATE postroom.relay SET pending = '{}', streams = '{}';
