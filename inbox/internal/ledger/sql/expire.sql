-- Remove ledger rows older than $3 from the pages $1 to $2. What is owed keeps
-- its row, at whatever age, and so does what was discarded and can be reopened.
-- "OFFSET 0" has both looked up for each row: a join would read all of them.
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
