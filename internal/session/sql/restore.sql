-- Set the settings with names $1 to $2 again, which RESET ALL may have taken away where a
-- pooler between client and server had set them for the client.
--
-- Locks   none.
-- Index   none.
-- Called  by session.Pool.End.
SELECT count(set_config(p.name, p.setting, false)) FROM unnest($1::text[], $2::text[]) AS p (name, setting);
