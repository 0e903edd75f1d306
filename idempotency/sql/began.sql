-- When this transaction began. No other transaction of its connection began at that time.
--
-- Locks   none.
-- Index   none.
-- Called  by store.open for an operation without a key, with the BEGIN before it and in the same round trip, and by Phase.
SELECT now();
