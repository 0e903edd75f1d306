-- Record that process $1 is at step $2 with state $3, and waits for the reply to command $4.
--
-- Locks   the row, which is locked already.
-- Index   the primary key.
-- Called  by ByHand.
UPDATE postroom.process_by_hand SET step = $2, state = $3, command = $4, changed_at = now() WHERE id = $1;
