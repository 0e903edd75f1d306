-- Begin process $1 with state $2. The process waits for the reply to command $3.
--
-- Locks   the new row.
-- Index   the primary key.
-- Called  by ByHand.
INSERT INTO postroom.process_by_hand (id, state, command) VALUES ($1, $2, $3);
