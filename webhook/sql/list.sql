-- The endpoints of the accounts $1, without their secrets. If $1 is NULL or empty: all endpoints.
--
-- Locks   none.
-- Index   none: it runs rarely, when a person lists endpoints.
-- Order   by account and id.
-- Called  by Endpoints.List.
SELECT id, account, url, types, created_at, rotated_at, disabled_at, coalesce(disabled_reason, ''), failing_since,
       CASE WHEN paused_until > now() THEN paused_until END, last_status, last_at
FROM postroom.webhook_endpoint
--guard:a-list-of-no-accounts-is-a-list-of-all 1 = @1.1.1 IS NULL
WHERE coalesce(pg_catalog.cardinality($1::text[]), 0) = 0 OR account = ANY ($1)
ORDER BY account, id;
