-- Sets the time after which an instance is stuck to $3 for all versions of saga $1 below $2. $3 is
-- the time of the newest program.
--
-- Locks   the rows that change.
-- Index   the primary key.
-- Called  by Saga.check.
UPDATE postroom.saga_definition SET stuck = $3 WHERE name = $1 AND version < $2 AND stuck <> $3
