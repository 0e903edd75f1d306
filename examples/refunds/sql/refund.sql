-- Insert a refund that the provider has made.
--
-- $1 id   $2 its charge   $3 merchant   $4 amount   $5 the provider's id
-- $6 Idempotency-Key
--
-- Locks   the new row.
-- Index   its primary key.
-- Called  by service.settle.
INSERT INTO refund (id, charge_id, merchant, amount, provider_ref, request_key) VALUES ($1, $2, $3, $4, $5, $6);
