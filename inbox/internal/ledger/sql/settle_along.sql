-- Settle the held events $1. They waited behind the event that settle.sql has just settled, and ran
-- under its claim. If fewer rows are updated than $1 has ids, an operator has acted on an event.
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
