-- Settle the held event $1 under the claim with epoch $2, and fail with 22P02 if another process
-- has claimed the event, or if it is settled: then the COMMIT that follows in the same round trip
-- is not executed. The event's row of inbox keeps its failures, without stacks. If it fails, the
-- server's log shows a text that is not a number.
--
-- Locks   the held row and its inbox row.
-- Index   held_pkey (id), inbox's primary key.
-- Called  by Handler.SettleAndCommit, after the handler, in its transaction.
WITH settled AS (
    DELETE FROM postroom.held WHERE id = $1 AND epoch = $2 RETURNING handler, dedupe_key, failures
), noted AS (
    UPDATE postroom.inbox
    SET at = now(),
        failures = CASE WHEN jsonb_array_length(settled.failures) > 0 THEN (
            SELECT jsonb_agg(jsonb_build_object('at', f->'at', 'class', f->'class', 'text', left(f->>'text', 300)) ORDER BY n)
            FROM jsonb_array_elements(settled.failures) WITH ORDINALITY AS e (f, n)) END
    FROM settled
    WHERE inbox.handler = settled.handler AND inbox.dedupe_key = settled.dedupe_key
    RETURNING 1
)
SELECT CASE WHEN n = 1 THEN 0 -- the text has n in it, so that the planner does not compute it for known $1 and $2
            ELSE (n || ' rows: held event ' || $1::bigint || ' is settled, or was claimed again after claim ' || $2::bigint)::int END
FROM (SELECT count(*) AS n FROM noted) AS noted;
