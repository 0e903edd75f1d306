-- The rights that PUBLIC has on the tables and their columns, and its right CREATE on the schema.
--
-- Locks   none.
-- Index   pg_class's by name.
-- Order   by table.
-- Called  by checkPublic.
SELECT privilege, relation
FROM (
    SELECT acl.privilege_type AS privilege, c.relname::text AS relation
    FROM pg_class c, aclexplode(c.relacl) AS acl
    WHERE c.relnamespace = 'postroom'::regnamespace AND acl.grantee = 0
    UNION
    SELECT acl.privilege_type, c.relname || '.' || a.attname
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attacl IS NOT NULL, aclexplode(a.attacl) AS acl
    WHERE c.relnamespace = 'postroom'::regnamespace AND acl.grantee = 0
    UNION
    SELECT acl.privilege_type, 'the schema'
    FROM pg_namespace n, aclexplode(n.nspacl) AS acl
    WHERE n.oid = 'postroom'::regnamespace AND acl.grantee = 0 AND acl.privilege_type = 'CREATE'
) granted
ORDER BY relation, privilege;
