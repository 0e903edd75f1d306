-- Request dry runs of the held events $2 at the handlers $1. Remove old requests, for which no
-- command waits any more.
--
-- Locks   the new rows and those that are removed.
-- Index   none; there are as few rows as dry runs.
-- Called  by Store.DryRun.
WITH forgotten AS (
    DELETE FROM postroom.trial WHERE asked_at < now() - interval '10 minutes'
)
INSERT INTO postroom.trial (handler, held)
SELECT * FROM unnest($1::text[], $2::bigint[])
RETURNING id, held;
