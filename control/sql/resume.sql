-- End the pause of handler $1, unless it has run out.
--
-- Locks   the handler's row.
-- Index   pause_pkey (handler).
-- Called  by Store.Resume.
DELETE FROM postroom.pause WHERE handler = $1 AND (until IS NULL OR until > now());
