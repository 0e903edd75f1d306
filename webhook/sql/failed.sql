-- Record that an attempt at endpoint $1 failed with the HTTP status $2 (0: there was no answer).
--   $3  the pause for which the endpoint asked, in seconds, limited to 3,600; NULL: none
--   $4  whether the failure is about the endpoint, and not only about this event: if so, pause the
--       endpoint for a tenth of the time for which it has failed (from 1 second to 10 minutes)
--   $5  the reason to disable the endpoint at once; NULL: disable it if it has failed for $6, by this
--       database's clock and by the sender's: $8 is the latest time that the sender believes
--   $7  the handler, for the audit
-- Returns whether the endpoint is disabled, whether this statement disabled it, whether it fails since
-- now, and the reason.
--
-- Locks   the endpoint's row.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Sender.failed.
WITH before AS (
    SELECT id, disabled_at, failing_since,
           --guard:webhook-disabled-after-five-days = failing_since <= least(now(), $8::timestamptz) AND $6::interval IS NOT NULL
           --guard:an-endpoint-is-disabled-by-two-clocks = failing_since <= greatest(now(), $8::timestamptz) - $6::interval
           failing_since <= least(now(), $8::timestamptz) - $6::interval AS too_long
    FROM postroom.webhook_endpoint
    WHERE id = $1
    FOR UPDATE
), changed AS (
    UPDATE postroom.webhook_endpoint AS e
    SET failing_since = coalesce(before.failing_since, now()),
        last_status = $2, last_at = now(),
        paused_until = greatest(e.paused_until,
            --guard:webhook-no-pause-unless-asked-for 1 true
            CASE WHEN $3::float8 IS NOT NULL THEN now() + least($3, 3600) * interval '1 second' END, -- LEAST ignores NULL
            CASE WHEN $4 THEN now() + least(greatest((now() - coalesce(before.failing_since, now())) / 10::float8, interval '1 second'), interval '10 minutes') END),
        disabled_at = CASE WHEN before.disabled_at IS NULL AND ($5::text IS NOT NULL OR before.too_long)
                           THEN now() ELSE before.disabled_at END,
        disabled_reason = CASE WHEN before.disabled_at IS NOT NULL THEN e.disabled_reason
                               WHEN $5::text IS NOT NULL THEN $5
                               WHEN before.too_long THEN 'it failed since ' || to_char(before.failing_since AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') END
    FROM before
    WHERE e.id = before.id
    RETURNING e.id, e.disabled_at IS NOT NULL AS disabled, e.disabled_at IS NOT NULL AND before.disabled_at IS NULL AS now, before.failing_since IS NULL AS began, e.disabled_reason
), said AS (
    INSERT INTO postroom.audit (actor, action, reason, events, handler, details)
    SELECT 'sender', 'webhook disable', disabled_reason, 0, $7, pg_catalog.jsonb_build_object('endpoint', id)
    FROM changed WHERE now
)
SELECT disabled, now, began, coalesce(disabled_reason, '') FROM changed;
