-- Lock key $2 of handler $1 until the transaction ends: what the next statement
-- sees of it stays so.
--
-- Locks   the key.
-- Index   none.
-- Called  by Handler.SettleKey and Handler.noting, before what ends an event of a key.
SELECT pg_advisory_xact_lock(postroom.key_lock($1, $2));
