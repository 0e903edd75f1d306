-- Record that endpoint $1 answered with the HTTP status $2, a success: it no longer fails. $3 is the
-- handler, and $4 the dedupe key of the event. The process that got the answer may have ended before
-- this statement, which another attempt at the event runs much later. If an attempt at the endpoint
-- failed after the answer, the endpoint still fails and is still paused, but it has not failed since
-- before the answer. Returns whether it failed before, and works again.
--
-- Locks   the endpoint's row.
-- Index   webhook_endpoint_pkey (id); receipt_pkey (handler, dedupe_key, step, revision).
-- Called  by Sender.succeeded.
WITH before AS (
    --guard:webhook-receipt-of-an-earlier-attempt-is-no-success 4 false
    SELECT e.id, e.failing_since, answer.at, e.last_at > answer.at AS is_old
    FROM postroom.webhook_endpoint AS e
    CROSS JOIN (SELECT max(done_at) AS at FROM postroom.receipt WHERE handler = $3 AND dedupe_key = $4 AND step = 'deliver') AS answer
    WHERE e.id = $1
    FOR UPDATE OF e
)
UPDATE postroom.webhook_endpoint AS e
SET failing_since = CASE WHEN before.is_old THEN greatest(before.failing_since, before.at) END,
    paused_until = CASE WHEN before.is_old THEN e.paused_until END,
    last_status = CASE WHEN before.is_old THEN e.last_status ELSE $2 END,
    last_at = CASE WHEN before.is_old THEN e.last_at ELSE now() END
FROM before
WHERE e.id = before.id AND (before.is_old IS NOT TRUE OR before.failing_since IS NOT NULL)
RETURNING before.failing_since IS NOT NULL AND before.is_old IS NOT TRUE;
