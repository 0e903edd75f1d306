-- Record that handlers decided events of the log: the n-th handler of $2 decided all events of the
-- n-th type of $1, each 20 ms after it was written.
--
-- Locks   the new rows.
-- Called  by office.ledger.
INSERT INTO postroom.inbox (handler, dedupe_key, digest, at)
SELECT h.handler, o.source || ' ' || o.event_id, o.digest, o.created_at + interval '20 milliseconds'
FROM postroom.outbox o
JOIN unnest($1::text[], $2::text[]) AS h (type, handler) USING (type)
ORDER BY o.seq;
