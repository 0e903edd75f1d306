-- Whether what handler $1 decided under dedupe key $2 is the event of digest $3.
--
-- Locks   none.
-- Index   inbox's primary key.
-- Called  by consumer.run, for an event that is decided already.
SELECT digest IS NOT DISTINCT FROM $3
FROM postroom.inbox
WHERE handler = $1 AND dedupe_key = $2;
