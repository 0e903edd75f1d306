-- Of the dedupe keys $2, return those that have no row of handler $1 and should have one. $3 has for
-- each key when its event was written. If rows from that time may have expired, the event may be
-- decided. If a process of the handler ever had a DedupeKey function, the rows may have other keys, and
-- the statement returns none.
--
-- "OFFSET 0" makes the planner look up each key; a join could read all of inbox.
--
-- Locks   none.
-- Index   the primary keys of inbox, dedupe_window and subscription.
-- Order   as in $2.
-- Called  by examination.lacking.
SELECT e.key
FROM unnest($2::text[], $3::timestamptz[]) WITH ORDINALITY AS e (key, written, n)
WHERE NOT EXISTS (SELECT FROM postroom.inbox WHERE handler = $1::text AND dedupe_key = e.key OFFSET 0)
  --guard:doctor-rows-that-expired true
  AND NOT EXISTS (SELECT FROM postroom.dedupe_window WHERE handler = $1 AND e.written < expired_before + interval '1 hour')
  --guard:doctor-keys-of-a-function true
  AND NOT EXISTS (SELECT FROM postroom.subscription WHERE handler = $1 AND own_keys)
ORDER BY e.n;
