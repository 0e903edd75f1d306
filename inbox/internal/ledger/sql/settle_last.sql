-- Settle the held event $1 under the claim with epoch $2. The event's failures are kept in its row
-- of inbox, without stacks. If another process has claimed the event, or if it is settled already,
-- the statement casts a text to int, and so fails with 22P02. Then the server does not execute the
-- COMMIT that follows in the same round trip. The server's log shows the text.
--
-- Locks   the held row and its inbox row.
-- Index   held_pkey (id), inbox's primary key.
-- Called  by Handler.SettleAndCommit, after the handler, in its transaction.
WITH settled AS (
    DELETE FROM postroom.held WHERE id = $1 AND epoch = $2 RETURNING handler, dedupe_key, failures
), noted AS (
    UPDATE postroom.inbox
    SET at = now(),
        --guard:a-success-without-a-key-keeps-the-failures-before-it 2.1 false
        failures = CASE WHEN jsonb_array_length(settled.failures) > 0 THEN (
            SELECT jsonb_agg(pg_catalog.jsonb_build_object('at', f->'at', 'class', f->'class', 'text', left(f->>'text', 300)) ORDER BY n)
            FROM jsonb_array_elements(settled.failures) WITH ORDINALITY AS e (f, n)) END
    FROM settled
    WHERE inbox.handler = settled.handler AND inbox.dedupe_key = settled.dedupe_key
    RETURNING 1
)
--guard:a-claim-that-is-over-commits-nothing 1 = n >= 0
SELECT CASE WHEN n = 1 THEN 0 -- the text contains n: otherwise the planner would compute it for known $1 and $2, and fail
            ELSE (n::text || ' rows: held event ' || $1::bigint::text || ' is settled, or was claimed again after claim ' || $2::bigint::text)::int END
FROM (SELECT count(*) AS n FROM noted) AS noted;
