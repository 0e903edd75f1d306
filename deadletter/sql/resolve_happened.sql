-- Record that step $3 of the event with dedupe key $2 at handler $1 happened, with the result $4.
-- An operator has asked the vendor.
--
-- Locks   the receipts.
-- Index   receipt's primary key.
-- Called  by Store.Resolve, after lock_dead.sql.
UPDATE postroom.receipt SET done_at = now(), result = $4
WHERE handler = $1 AND dedupe_key = $2 AND step = $3 AND done_at IS NULL;
