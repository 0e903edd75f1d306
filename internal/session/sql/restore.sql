-- Set the settings with names $1 to the values $2 again. A pooler between client and server had set
-- these settings for the client, and RESET ALL may have reset them.
--
-- Locks   none.
-- Index   none.
-- Called  by Pool.End.
SELECT pg_catalog.count(set_config(p.name, p.setting, false)) FROM unnest($1::text[], $2::text[]) AS p (name, setting);
