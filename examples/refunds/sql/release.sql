-- Forget that a charge or refund $1 was begun: it is done, or declined.
--
-- Locks   the row.
-- Index   its primary key.
-- Called  by service.settle.
DELETE FROM reservation WHERE id = $1;
