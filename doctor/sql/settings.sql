-- The settings named $1 of a new connection of this role. They are the reset values, because
-- begin.sql has changed some settings for this transaction.
--
-- Locks   none.
-- Index   none.
-- Called  by examination.loadSettings.
SELECT name, reset_val
FROM pg_settings
WHERE name = ANY ($1::text[]);
