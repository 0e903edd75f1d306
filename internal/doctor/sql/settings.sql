-- The settings with the names $1, as a new connection of this role has them. The statement returns
-- the reset values, because begin.sql has changed some settings for this transaction.
--
-- Locks   none.
-- Index   none.
-- Called  by examination.loadSettings.
SELECT name, reset_val
FROM pg_settings
WHERE name = ANY ($1::text[]);
