-- The data of endpoint $1 for one attempt: its account, its URL, the secrets that sign now, whether
-- it is disabled, whether it fails, for how many seconds it is paused, whether the next success
-- changes its row, and the status of its last recorded answer (0: there was none).
--
-- Locks   none.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Sender.read.

--guard:webhook-old-secret 3 = @2
SELECT account, url, CASE WHEN rotated_at > now() - interval '24 hours' THEN secrets ELSE secrets[1:1] END, disabled_at IS NOT NULL,
       failing_since IS NOT NULL, greatest(extract(epoch FROM paused_until - now()), 0)::float8,
       failing_since IS NOT NULL OR paused_until IS NOT NULL OR last_status IS NULL OR last_status NOT BETWEEN 200 AND 299,
       coalesce(last_status, 0)
FROM postroom.webhook_endpoint
WHERE id = $1;
