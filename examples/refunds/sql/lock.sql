-- Lock charge $1 of merchant $2, and return the provider's id and the amount. Transactions that
-- refund one charge wait here for each other.
--
-- Locks   the charge, until the transaction ends.
-- Index   its primary key.
-- Called  by kind.hold, of refunds.
SELECT provider_ref, amount FROM charge WHERE id = $1 AND merchant = $2 FOR UPDATE;
