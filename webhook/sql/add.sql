-- Add an endpoint, if its id is not taken. $1 id   $2 account   $3 URL   $4 types   $5 secret
--
-- Locks   the new row.
-- Index   webhook_endpoint_pkey (id).
-- Called  by Endpoints.Add.
INSERT INTO postroom.webhook_endpoint (id, account, url, types, secrets)
VALUES ($1, $2, $3, $4, ARRAY[$5::text])
ON CONFLICT (id) DO NOTHING;
