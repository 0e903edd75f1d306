-- The part of charge $1 that refunds have given back or have reserved. This is a separate statement
-- after lock.sql, so that it sees all changes of the transaction that had the lock before.
--
-- Locks   none.
-- Index   refund_charge_id, reservation_charge_id.
-- Called  by kind.hold, of refunds.
SELECT (SELECT coalesce(sum(amount), 0) FROM refund WHERE charge_id = $1)::bigint
     + (SELECT coalesce(sum(amount), 0) FROM reservation WHERE charge_id = $1 AND kind = 'refund')::bigint;
