-- The rights that PUBLIC has on the tables and their columns, on functions and types, and its right
-- CREATE on the schema. The column owner says whether a function runs with the rights of its owner,
-- or is a trigger function. A function or a type without a list of rights is for PUBLIC.
--
-- Locks   none.
-- Index   pg_class's, pg_proc's and pg_type's by name.
-- Order   by table.
-- Called  by checkPublic.
SELECT privilege, relation, owner
FROM (
    SELECT acl.privilege_type AS privilege, c.relname::text AS relation, false AS owner
    FROM pg_class c, aclexplode(c.relacl) AS acl
    WHERE c.relnamespace = 'postroom'::regnamespace::oid AND acl.grantee = 0::oid
    UNION
    SELECT acl.privilege_type, c.relname::text || '.' || a.attname::text, false
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attacl IS NOT NULL, aclexplode(a.attacl) AS acl
    WHERE c.relnamespace = 'postroom'::regnamespace::oid AND acl.grantee = 0::oid
    UNION
    SELECT acl.privilege_type, f.proname::text, f.prosecdef OR f.prorettype = 'trigger'::regtype::oid
    FROM pg_proc f, aclexplode(coalesce(f.proacl, pg_catalog.acldefault('f', f.proowner))) AS acl
    --guard:the-doctor-looks-at-functions 2 false
    WHERE f.pronamespace = 'postroom'::regnamespace::oid AND acl.grantee = 0::oid
    UNION
    SELECT acl.privilege_type, t.typname::text, false
    FROM pg_type t, aclexplode(coalesce(t.typacl, pg_catalog.acldefault('T', t.typowner))) AS acl
    WHERE t.typnamespace = 'postroom'::regnamespace::oid AND t.typtype = 'd'::"char" AND acl.grantee = 0::oid
    UNION
    SELECT acl.privilege_type, 'the schema', false
    FROM pg_namespace n, aclexplode(n.nspacl) AS acl
    WHERE n.oid = 'postroom'::regnamespace::oid AND acl.grantee = 0::oid AND acl.privilege_type = 'CREATE'
) granted
ORDER BY relation, privilege;
