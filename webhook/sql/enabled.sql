-- Whether endpoint $1 is enabled.
--
-- Locks   none.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Sender.mustBeEnabled.
SELECT disabled_at IS NULL FROM postroom.webhook_endpoint WHERE id = $1;
