-- Gives all versions of saga $1 below $2 the time $3 after which an instance is stuck: that of the
-- newest program.
--
-- Locks   the rows that change.
-- Index   the primary key.
-- Called  by Saga.check.
UPDATE postroom.saga_definition SET stuck = $3 WHERE name = $1 AND version < $2 AND stuck <> $3
