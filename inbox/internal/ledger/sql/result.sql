-- Store the result $3 of the event with dedupe key $2 of handler $1.
--
-- Locks   the inbox row.
-- Index   inbox's primary key.
-- Called  by Handler.NoteResult, after the handler, in its transaction.
UPDATE postroom.inbox SET result = $3 WHERE handler = $1 AND dedupe_key = $2;
