-- Lock process $1. Return its step, its state, and the command for whose reply it waits.
--
-- Locks   the row, until the transaction ends.
-- Index   the primary key.
-- Called  by ByHand.
SELECT step, state, command FROM postroom.process_by_hand WHERE id = $1 FOR UPDATE;
