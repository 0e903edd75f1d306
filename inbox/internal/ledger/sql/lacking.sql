-- Return which of the dedupe keys $2 have no row of handler $1, so that the handler has not decided
-- their events. If a process of the handler ever had a Subscription.DedupeKey, the rows may have other
-- keys, and the statement returns none. $3 says of which keys a row would be so old that the sweep may
-- have removed it. If the sweep has removed rows of the handler, the statement does not return these
-- keys.
--
-- "OFFSET 0" makes the planner look up each key; a join could read all of inbox.
--
-- Locks   none.
-- Index   the primary keys of inbox, subscription and dedupe_window.
-- Called  by Records.Lacking.
SELECT e.key
FROM unnest($2::text[], $3::bool[]) AS e (key, old)
WHERE NOT EXISTS (SELECT FROM postroom.inbox WHERE handler = $1::text AND dedupe_key = e.key OFFSET 0)
  --guard:the-rows-of-old-events-are-not-missing true
  AND NOT (e.old AND EXISTS (SELECT FROM postroom.dedupe_window WHERE handler = $1 AND expired_before IS NOT NULL))
  --guard:keys-of-an-earlier-function-are-not-missing true
  AND NOT EXISTS (SELECT FROM postroom.subscription WHERE handler = $1 AND own_keys);
