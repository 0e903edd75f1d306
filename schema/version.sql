-- Take the migration lock and create the table that records versions.
--
-- Locks   an advisory lock of this schema's name, until the transaction ends.
-- Index   none.
-- Called  by Migrate, first in each of its transactions, and by Print.

-- Without this search path, a role that may create in a schema of the path could have its function
-- run by the role that migrates. What a migration creates would call that function later, too.
--guard:migrations-have-their-own-search-path remove
SET LOCAL search_path = pg_catalog, pg_temp;

--guard:those-who-migrate-take-turns = 1
SELECT pg_advisory_xact_lock(hashtextextended('postroom.migrate', 0::bigint));

-- This block looks for the schema first, because CREATE SCHEMA IF NOT EXISTS requires the right to
-- create schemas even if the schema exists.
DO $$
BEGIN
    IF to_regnamespace('postroom') IS NULL THEN
        CREATE SCHEMA postroom;
    END IF;
END $$;

CREATE TABLE IF NOT EXISTS postroom.migration (
    version     int         PRIMARY KEY,
    name        text        NOT NULL,
    serves_from int         NOT NULL, -- a program can work with this version of the tables if its newest migration has this number or a higher one
    applied_at  timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postroom.migration IS
    'The migrations of Postroom that were applied here. The transaction that applies a migration also adds its row.';
