-- The recorded steps of version $2 of saga $1.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by Saga.define.
SELECT steps FROM postroom.saga_definition WHERE name = $1 AND version = $2
