-- Return the claims of process $1 on events of handlers $2: the event and the epoch of each claim.
-- If the answer of a claiming statement was lost, the process does not know of some of them.
--
-- Locks   none.
-- Index   held_alone (handler, next_at).
-- Called  by Claims.Orphans.
SELECT id, epoch FROM postroom.held
WHERE handler = ANY ($2::text[]) AND claimed_by = $1;
