-- End the pause of handler $1, or of the relays (outbox), if its time is not over.
--
-- Locks   the handler's row.
-- Index   pause_pkey (handler).
-- Called  by Store.resume.
DELETE FROM postroom.pause WHERE handler = $1 AND (until IS NULL OR until > now());
