-- Settle the held events $1, which waited behind an event that was settled just now, under
-- the claim on that event. If fewer rows are returned, another process decided one of them.
--
-- Locks   the held rows and their inbox rows; the key is locked before.
-- Index   held_pkey (id), inbox's primary key.
-- Called  by Handler.SettleKey, after plan.sql and settle.sql, in the handlers' transaction.
WITH settled AS (
    DELETE FROM postroom.held WHERE id = ANY ($1::bigint[]) AND next_at IS NULL AND dead_at IS NULL RETURNING handler, dedupe_key
)
UPDATE postroom.inbox
SET at = now()
FROM settled
WHERE inbox.handler = settled.handler AND inbox.dedupe_key = settled.dedupe_key;
