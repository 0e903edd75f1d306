-- Settle the held events $1, each under the claim with its epoch in $2. If an event is not
-- returned, another process has claimed it, or it is settled already. The events' failures are kept
-- in their rows of inbox, without stacks.
--
-- Locks   the held rows and their inbox rows.
-- Index   held_pkey (id), inbox's primary key.
-- Called  by Receipts.settle, and by Handler.SettleAll in the transaction of a batch; after plan.sql.
WITH settled AS (
    DELETE FROM postroom.held
    USING unnest($1::bigint[], $2::bigint[]) AS c (id, epoch)
    WHERE held.id = c.id AND held.epoch = c.epoch
    RETURNING held.id, held.epoch, held.handler, held.dedupe_key, held.failures
), noted AS (
    UPDATE postroom.inbox
    SET at = now(),
        --guard:a-success-of-an-external-handler-keeps-the-failures-before-it 2.1 false
        failures = CASE WHEN jsonb_array_length(settled.failures) > 0 THEN (
            SELECT jsonb_agg(pg_catalog.jsonb_build_object('at', f->'at', 'class', f->'class', 'text', left(f->>'text', 300)) ORDER BY n)
            FROM jsonb_array_elements(settled.failures) WITH ORDINALITY AS e (f, n)) END
    FROM settled
    WHERE inbox.handler = settled.handler AND inbox.dedupe_key = settled.dedupe_key
)
SELECT id, epoch FROM settled;
