-- Remove the rows of key $3 of principal $2 in scope $1, unless an attempt holds the key. There are
-- two if the principal has a row in its other form $5, too: see look.sql. $4 is the latest time that
-- the caller believes.
--
-- Locks   the rows.
-- Index   the primary key.
-- Called  by Guard.Delete.
DELETE FROM postroom.idempotency
--guard:what-is-held-is-not-deleted 4 true
--guard:what-ran-out-is-deleted 4 = state <> 'pending' AND $4::timestamptz IS NOT NULL
WHERE scope = $1 AND principal IN ($2, $5) AND key = $3 AND NOT coalesce(state = 'pending' AND lease_until > least(clock_timestamp(), $4::timestamptz), false);
