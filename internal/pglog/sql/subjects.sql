-- The subjects in use: those of the 1,000 newest events, published or not, and of the 1,000 events
-- that are published next. A list of all subjects would need an index, which would make each insert
-- slower. A row can contain any text. The statement leaves out texts that are not a subject,
-- because the relay refuses their rows.
--
-- Locks   none.
-- Index   outbox_pkey (seq), twice: from its end, and from high on.
-- Order   by subject.
-- Called  by Log.Subjects.
SELECT DISTINCT subject::text
FROM (
    (SELECT subject FROM postroom.outbox ORDER BY seq DESC LIMIT 1000)
    UNION ALL
    (SELECT subject FROM postroom.outbox WHERE seq > (SELECT high FROM postroom.relay) ORDER BY seq LIMIT 1000)
) used
WHERE CASE WHEN octet_length(subject) <= 255 THEN subject ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$' END
ORDER BY subject;
