-- If the time after which an instance of saga $1 counts as stuck becomes longer, and is now $2, the
-- hours of the instances that wait for a deadline become earlier. Otherwise the index would find them
-- later by the difference. If the time does not become longer, the statement reads no instance.
--
-- Locks   the rows that change.
-- Index   saga_waiting (name, waits_hour, key); the primary key of saga_definition.
-- Called  by Saga.check, before define.sql and stuck.sql.
UPDATE postroom.saga
SET waits_hour = pg_catalog.date_bin('1 hour', deadline + interval '5 minutes' - $2::interval, 'epoch')
WHERE name = $1::text AND ended_at IS NULL AND deadline IS NOT NULL
  AND coalesce((SELECT max(d.stuck) FROM postroom.saga_definition d WHERE d.name = $1::text), '1 hour') < $2::interval
  AND waits_hour > pg_catalog.date_bin('1 hour', deadline + interval '5 minutes' - $2::interval, 'epoch')
