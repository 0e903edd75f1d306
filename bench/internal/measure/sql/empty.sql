-- Empty the tables that producers write to. The sequence goes on: the relay's
-- high stays below it. What a relay left unpublished at its end is gone with the
-- rows, and the stream that it published to with that measurement.
--
-- Locks   the three tables, and the one row of relay.
-- Called  by servers.empty.
TRUNCATE postroom.outbox, postroom.orders, postroom.outbox_by_hand;
UPDATE postroom.relay SET pending = '{}', streams = '{}';
