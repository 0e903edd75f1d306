-- Remove rows that are older than $3 from pages $1 to $2 of inbox. The row of an event that
-- is held, or was discarded and can be reopened, stays at any age. "OFFSET 0" makes the
-- planner look up both for each row; a join would read all of held and archive.
--
-- Locks   the removed rows.
-- Index   none: the pages are read; held_owed and archive_owed (handler, dedupe_key) for each old row.
-- Called  by Upkeep.Sweep.
DELETE FROM postroom.inbox
WHERE ctid >= $1::text::tid AND ctid < $2::text::tid
  AND at < now() - $3::interval
  AND NOT EXISTS (SELECT FROM postroom.held WHERE held.handler = inbox.handler AND held.dedupe_key = inbox.dedupe_key
                  OFFSET 0)
  AND NOT EXISTS (SELECT FROM postroom.archive WHERE archive.handler = inbox.handler AND archive.dedupe_key = inbox.dedupe_key
                  OFFSET 0);
