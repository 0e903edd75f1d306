-- Remove the record that step $3 of the event with dedupe key $2 at handler $1 began, because the
-- step did not happen. An operator has asked the vendor.
--
-- Locks   the receipts.
-- Index   receipt's primary key.
-- Called  by Store.Resolve, after lock_dead.sql.
DELETE FROM postroom.receipt
WHERE handler = $1 AND dedupe_key = $2 AND step = $3 AND done_at IS NULL;
