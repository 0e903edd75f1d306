-- The settings named $1, as a connection of this role begins with them: those of
-- this very transaction were changed for it.
--
-- Locks   none.
-- Index   none.
-- Called  by examination.loadSettings.
SELECT name, reset_val
FROM pg_settings
WHERE name = ANY ($1::text[]);
