-- What the sessions of this database that have work wait for at this moment: the disk, that is until
-- PostgreSQL has synced its log; the program, between two statements of a transaction; something
-- else, such as a lock; or nothing, so they run, or wait for a processor.
--
-- Locks   none.
-- Index   none; it reads no table.
-- Called  by waits.look.
SELECT count(*) FILTER (WHERE wait_event ILIKE 'wal%')                                 AS disk,
       count(*) FILTER (WHERE wait_event_type = 'Client')                              AS program,
       count(*) FILTER (WHERE wait_event_type <> 'Client' AND wait_event NOT ILIKE 'wal%') AS other,
       count(*) FILTER (WHERE wait_event IS NULL)                                      AS running
FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
  AND (state LIKE 'active%' OR state LIKE 'idle in transaction%');
