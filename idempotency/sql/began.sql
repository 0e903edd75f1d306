-- Return the time at which this transaction began. No other transaction of the same connection
-- began at that time.
--
-- Locks   none.
-- Index   none.
-- Called  by Phase, and by store.open for an operation without a key, after BEGIN and in the same round trip.
SELECT now();
