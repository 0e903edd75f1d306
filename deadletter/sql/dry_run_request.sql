-- Request dry runs of the held events $2 at the handlers $1. Also remove requests that are older
-- than 10 minutes, because no command waits for them any longer.
--
-- Locks   the new rows and those that are removed.
-- Index   none; there are as few rows as dry runs.
-- Called  by Store.DryRun.
WITH forgotten AS (
    DELETE FROM postroom.dry_run WHERE asked_at < now() - interval '10 minutes'
)
INSERT INTO postroom.dry_run (handler, held)
SELECT * FROM unnest($1::text[], $2::bigint[])
RETURNING id, held;
