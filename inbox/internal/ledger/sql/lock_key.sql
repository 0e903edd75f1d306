-- Lock key $2 of handler $1 until the transaction ends, so that no other transaction changes the
-- held events of the key.
--
-- Locks   the key.
-- Index   none.
-- Called  by Handler.SettleKey, Handler.LeaveKey, Handler.noting and Records.SkipDead, before the
--         statements on the events of the key.

--guard:key-lock = @1 IS NOT NULL
SELECT pg_advisory_xact_lock(postroom.key_lock($1, $2));
