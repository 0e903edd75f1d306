-- Store the text $3, in which handler $1 describes what it did for the event with dedupe key $2.
--
-- Locks   the inbox row.
-- Index   inbox's primary key.
-- Called  by Handler.NoteResult, after the handler, in its transaction.
UPDATE postroom.inbox SET result = $3 WHERE handler = $1 AND dedupe_key = $2;
