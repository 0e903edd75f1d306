-- Empty the tables to which producers write. TRUNCATE does not reset the sequence, so new events
-- have seqs above the relay's high. It also removes events that the last relay did not publish,
-- because the stream of that measurement no longer exists.
--
-- Locks   the three tables, and the one row of relay.
-- Called  by servers.empty.
TRUNCATE postroom.outbox, postroom.orders, postroom.outbox_by_hand;
UPDATE postroom.relay SET pending = '{}', streams = '{}';
