-- Insert a charge that the provider has made.
--
-- $1 id   $2 merchant   $3 amount   $4 the provider's id   $5 Idempotency-Key
--
-- Locks   the new row.
-- Index   its primary key.
-- Called  by service.settle.
INSERT INTO charge (id, merchant, amount, provider_ref, request_key) VALUES ($1, $2, $3, $4, $5);
