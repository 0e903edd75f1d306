-- Sets the time after which an instance counts as stuck. All versions of saga $1 get the time $3, which
-- version $2 has: the program that was checked last decides, also after a rollback.
--
-- Locks   the rows that change.
-- Index   the primary key.
-- Called  by Saga.check.
UPDATE postroom.saga_definition SET stuck = $3 WHERE name = $1 AND version <> $2 AND stuck <> $3
