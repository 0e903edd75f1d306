-- Settle the held event $1 under the claim with epoch $2. If no row is updated, another process has
-- claimed the event, or it is settled already. The event's failures are kept in its row of inbox,
-- without stacks.
--
-- Locks   the held row and its inbox row.
-- Index   held_pkey (id), inbox's primary key.
-- Called  by Handler.SettleKey, after the handler, in its transaction.
WITH settled AS (
    DELETE FROM postroom.held WHERE id = $1 AND epoch = $2 RETURNING handler, dedupe_key, failures
)
UPDATE postroom.inbox
SET at = now(),
    --guard:a-success-keeps-the-failures-before-it 2.1 false
    failures = CASE WHEN jsonb_array_length(settled.failures) > 0 THEN (
        SELECT jsonb_agg(pg_catalog.jsonb_build_object('at', f->'at', 'class', f->'class', 'text', left(f->>'text', 300)) ORDER BY n)
        FROM jsonb_array_elements(settled.failures) WITH ORDINALITY AS e (f, n)) END
FROM settled
WHERE inbox.handler = settled.handler AND inbox.dedupe_key = settled.dedupe_key;
