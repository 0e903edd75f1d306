-- Record migration $1, named $2. A program can work with its tables if the program has
-- migration $3.
--
-- Locks   the new row.
-- Index   migration's primary key.
-- Called  by Migrate, in the transaction of the migration.
INSERT INTO postroom.migration (version, name, serves_from)
VALUES ($1, $2, $3);
