-- The subjects in use: the subjects of the 1,000 newest events, and of the 1,000 events that the
-- relay publishes next. internal/pglog/sql/subjects.sql returns the same subjects. The statement
-- leaves out texts that are not a subject: a row can hold any text, and the relay refuses an event
-- with such a text.
--
-- Locks   none.
-- Index   outbox_pkey (seq), twice: from its end, and from high on.
-- Order   by subject.
-- Called  by examination.loadStreams.
SELECT DISTINCT subject::text
FROM (
    (SELECT subject FROM postroom.outbox ORDER BY seq DESC LIMIT 1000)
    UNION ALL
    (SELECT subject FROM postroom.outbox WHERE seq > (SELECT high FROM postroom.relay) ORDER BY seq LIMIT 1000)
) used
WHERE CASE WHEN octet_length(subject) <= 255 THEN subject ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$' END
ORDER BY subject;
