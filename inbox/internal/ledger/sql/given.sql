-- Return the dedupe keys among $2 of the held events of handler $1 that transaction $3 wrote last. If
-- the commit of give_back.sql was not answered, these events got attempts back.
--
-- Locks   none.
-- Index   held_owed (handler, dedupe_key).
-- Called  by Claims.GiveBack.
SELECT dedupe_key FROM postroom.held
WHERE handler = $1 AND dedupe_key = ANY ($2::text[]) AND xmin OPERATOR(pg_catalog.=) $3::text::xid8::xid;
