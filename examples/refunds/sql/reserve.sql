-- Record that charge or refund $1 begins.
--
-- $2 kind   $3 charge   $4 merchant   $5 amount   $6 Idempotency-Key
--
-- Locks   the new row.
-- Index   its primary key.
-- Called  by service.reserve.
INSERT INTO reservation (id, kind, charge_id, merchant, amount, request_key) VALUES ($1, $2, $3, $4, $5, $6);
