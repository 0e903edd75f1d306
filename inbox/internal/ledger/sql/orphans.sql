-- Return the claims of process $1 on events of handlers $2: the event and the epoch of each claim.
-- If the answer of a claiming statement was lost, the process does not know of some of them.
--
-- Locks   none.
-- Index   held_alone (handler, next_at).
-- Called  by Claims.Orphans.
SELECT id, epoch FROM postroom.held
--guard:orphans-are-of-this-process 2 = claimed_by IS NOT NULL AND $1::text IS NOT NULL
--guard:orphans-are-of-the-handlers-here 1 true
WHERE handler = ANY ($2::text[]) AND claimed_by = $1;
