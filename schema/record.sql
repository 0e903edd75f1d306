-- Record migration $1, named $2. Programs of version $3 and newer can work with it.
--
-- Locks   the new row.
-- Index   migration's primary key.
-- Called  by Migrate, in the transaction of the migration.
INSERT INTO postroom.migration (version, name, serves_from)
VALUES ($1, $2, $3);
