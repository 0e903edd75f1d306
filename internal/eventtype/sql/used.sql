-- The subjects in use, as far as this database shows them: the subjects of the 1,000 newest events
-- of the log, of the 1,000 events that are published next, and of the last 1,000 events that were
-- held. outgoing says that the log has the subject: internal/pglog/sql/subjects.sql returns the same.
-- The statement leaves out texts that are not a subject, because a row can contain any text.
--
-- Locks   none.
-- Index   outbox_pkey (seq), twice: from its end, and from relay.high; held_pkey (id), from its end.
-- Order   by subject.
-- Called  by doctor (examination.loadSubjects) and inspect (readTypes).
SELECT subject::text, bool_or(outgoing) AS outgoing
FROM (
    (SELECT subject, true AS outgoing FROM postroom.outbox ORDER BY seq DESC LIMIT 1000)
    UNION ALL
    (SELECT subject, true FROM postroom.outbox WHERE seq > (SELECT high FROM postroom.relay) ORDER BY seq LIMIT 1000)
    UNION ALL
    (SELECT subject, false FROM postroom.held ORDER BY id DESC LIMIT 1000)
) used
WHERE CASE WHEN octet_length(subject) <= 255 THEN subject ~ '^[A-Za-z0-9_-]+([.][A-Za-z0-9_-]+)*$' END
GROUP BY subject
ORDER BY subject;
