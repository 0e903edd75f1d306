-- Empty the tables to which producers write. TRUNCATE does not reset the sequence, so the seqs of
-- new events are above relay.high. TRUNCATE also removes the unpublished events of an earlier
-- measurement: the stream for these events no longer exists.
--
-- Locks   the three tables, and the one row of relay.
-- Called  by servers.empty.
TRUNCATE postroom.outbox, postroom.orders, postroom.outbox_by_hand;
UPDATE postroom.relay SET pending = '{}', streams = '{}';
