-- Take requested dry runs of handlers $2 for process $1, at most $3 of them. $4 and $5 are the
-- types and subjects that this process handles, as in claim.sql: it cannot run other events.
-- "OFFSET 0" makes the planner look up the event for each row; a join could read all of held.
--
-- Locks   the rows of the dry runs; skips rows that another process is taking.
-- Index   dry_run_open (handler, id), held_pkey (id).
-- Called  by Claims.Claim.
UPDATE postroom.dry_run
SET taken_by = $1, taken_at = now()
WHERE id IN (SELECT t.id
             FROM unnest($2::text[], $4::text[], $5::text[]) AS h (handler, types, subjects)
             JOIN postroom.dry_run t ON t.handler = h.handler
             WHERE t.taken_by IS NULL AND t.asked_at > now() - interval '1 minute'
               AND NOT EXISTS (SELECT FROM postroom.held
                               WHERE held.id = t.held
                                 AND (h.types IS NOT NULL AND held.raw_headers IS NULL AND held.type <> ALL (string_to_array(h.types, ' '))
                                      OR h.subjects IS NOT NULL AND held.pos IS NOT NULL AND held.subject !~ h.subjects)
                               OFFSET 0)
             ORDER BY t.id
             LIMIT $3
             FOR UPDATE OF t SKIP LOCKED)
RETURNING id, handler, held;
