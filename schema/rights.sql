-- How many rights there are on the schema and what is in it. A grant gives something new if it makes the
-- number larger.
--
-- Locks   none.
-- Index   none; it reads the catalog.
-- Called  by Migrate, before and after it tries a grant.
SELECT pg_catalog.count(*)::int
FROM (
    SELECT n.nspacl FROM pg_catalog.pg_namespace n WHERE n.oid = pg_catalog.to_regnamespace('postroom')::oid
    UNION ALL
    SELECT c.relacl FROM pg_catalog.pg_class c WHERE c.relnamespace = pg_catalog.to_regnamespace('postroom')::oid
    UNION ALL
    SELECT f.attacl FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute f ON f.attrelid = c.oid
    WHERE c.relnamespace = pg_catalog.to_regnamespace('postroom')::oid
    UNION ALL
    SELECT p.proacl FROM pg_catalog.pg_proc p WHERE p.pronamespace = pg_catalog.to_regnamespace('postroom')::oid
) AS a (acl)
CROSS JOIN LATERAL pg_catalog.aclexplode(a.acl);
