-- Return whether the event that handler $1 decided under dedupe key $2 has digest $3. If one of the
-- two events has no digest, the result is true. No row means that no event was decided under that
-- key.
--
-- Locks   none.
-- Index   inbox's primary key.
-- Called  by Handler.Undecided, if no inbox row was inserted for an event.
SELECT digest IS NULL OR $3::bytea IS NULL OR digest = $3::bytea
FROM postroom.inbox
WHERE handler = $1 AND dedupe_key = $2;
