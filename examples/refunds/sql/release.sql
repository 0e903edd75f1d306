-- Delete the reservation of charge or refund $1, because the provider has made or declined it.
--
-- Locks   the row.
-- Index   its primary key.
-- Called  by service.settle.
DELETE FROM reservation WHERE id = $1;
