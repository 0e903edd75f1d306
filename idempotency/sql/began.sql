-- When this transaction began: no other one of its connection began then.
--
-- Locks   none.
-- Index   none.
-- Called  by store.open for what has no key, with the BEGIN before it and in the same round trip, and by Phase.
SELECT now();
