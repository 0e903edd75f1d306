-- Cancel republish $1 and write the audit row, in one statement: $2 actor, $3 reason. If the
-- republish is not running, the statement changes nothing and returns no row.
--
-- Locks   the row of the republish, only for this statement: the relay also writes this row.
-- Index   republish_pkey (id).
-- Called  by Store.CancelRepublish.
WITH ended AS (
    UPDATE postroom.republish SET state = 'cancelled', ended_at = clock_timestamp()
    WHERE id = $1 AND state = 'running'
    RETURNING *
), noted AS (
    INSERT INTO postroom.audit (actor, action, reason, events, details)
    SELECT $2, 'cancel_republish', $3, greatest(events - published - skipped - held, 0), pg_catalog.jsonb_build_object('republish', id)
    FROM ended
)
SELECT id, kind, created_at, actor, reason, since, until, types, keys, lo, hi, rate, state, events, published, skipped, held, ended_at
FROM ended;
