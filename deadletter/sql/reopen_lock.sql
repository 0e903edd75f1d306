-- Which of the events $1 are still in the archive. They stay there until the transaction
-- ends.
--
-- Locks   the archived rows, in their order; the relay's row is locked before.
-- Index   archive_pkey (id).
-- Called  by Store.Reopen, before reopen.sql.
SELECT id FROM postroom.archive WHERE id = ANY ($1::bigint[])
ORDER BY id
FOR UPDATE;
