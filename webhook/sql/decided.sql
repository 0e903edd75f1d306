-- Which of the dedupe keys $2 handler $1 has decided.
--
-- Locks   none.
-- Index   inbox's primary key.
-- Called  by Receiver.respelled.
SELECT i.dedupe_key
FROM postroom.inbox AS i
WHERE i.handler = $1::text AND i.dedupe_key = ANY ($2::text[]);
