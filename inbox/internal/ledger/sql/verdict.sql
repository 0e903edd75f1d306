-- Whether the event with dedupe key $2 and digest $3 is what handler $1 decided
-- under that key. No row: nothing is decided under it.
--
-- Locks   none.
-- Index   inbox's primary key.
-- Called  by Handler.Undecided, for an event of a key that was not decided.
SELECT digest IS NULL OR $3::bytea IS NULL OR digest = $3::bytea
FROM postroom.inbox
WHERE handler = $1 AND dedupe_key = $2;
