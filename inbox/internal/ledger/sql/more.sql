-- Return whether an event is held in key $2 of handler $1 after place $3.
--
-- Locks   none; the key is locked before.
-- Index   held_chain_pos (handler, chain, pos).
-- Called  by Handler.SettleKey, after follow.sql, in its transaction.
SELECT EXISTS (SELECT FROM postroom.held WHERE handler = $1 AND chain = $2 AND pos > $3);
