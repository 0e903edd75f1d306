-- Settle the held events $1, under the claim on the event that settle.sql has just settled: they
-- waited behind that event. If fewer rows are updated, an operator has acted on one of the events.
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
