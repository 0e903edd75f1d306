-- The ids of the events $1 that are still in the archive. Because of the locks, they stay there
-- until the transaction ends.
--
-- Locks   the archived rows, in the order of id. The caller locks the row of relay after them.
-- Index   archive_pkey (id).
-- Called  by Store.Reopen, before reopen.sql.
SELECT id FROM postroom.archive WHERE id = ANY ($1::bigint[])
ORDER BY id
FOR UPDATE;
