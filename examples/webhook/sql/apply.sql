-- Record a webhook, and add its amount to its payment.
--
-- $1 id of the webhook   $2 payment   $3 type   $4 amount
--
-- Locks   the payment's row.
-- Index   its primary key.
-- Called  by apply.
WITH fact AS (
    INSERT INTO movement (webhook_id, payment, type, amount)
    VALUES ($1, $2, $3, $4::bigint)
)
INSERT INTO payment AS p (id, authorized, captured, refunded)
VALUES ($2,
        CASE WHEN $3 = 'payment.authorized' THEN $4::bigint ELSE 0 END,
        CASE WHEN $3 = 'payment.captured'   THEN $4::bigint ELSE 0 END,
        CASE WHEN $3 = 'payment.refunded'   THEN $4::bigint ELSE 0 END)
ON CONFLICT (id) DO UPDATE
SET authorized = p.authorized + excluded.authorized,
    captured   = p.captured + excluded.captured,
    refunded   = p.refunded + excluded.refunded;
