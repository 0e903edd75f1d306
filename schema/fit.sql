-- What a database must be, so that Postroom can work in it: its encoding, and the tables of the schema
-- that row-level security hides from this role, completely or in part. Without the right to see a row,
-- a role cannot tell it from a row that does not exist.
--
-- Locks   none.
-- Index   none; it reads the catalog.
-- Called  by fits, before anything else is read or written.
SELECT pg_catalog.current_setting('server_encoding') AS encoding,
       (SELECT coalesce(string_agg(c.relname::text, ', ' ORDER BY c.relname), '')
        FROM pg_catalog.pg_class c
        WHERE c.relnamespace = pg_catalog.to_regnamespace('postroom')::oid AND c.relkind IN ('r', 'p')
          AND pg_catalog.row_security_active(c.oid)) AS secured;
