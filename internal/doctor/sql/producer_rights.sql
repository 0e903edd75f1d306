-- The rights that a producer must have, or must not have, and whether role $1 has them. If the role
-- does not exist, the result has no row.
--
-- Locks   none.
-- Index   pg_class's and pg_proc's by name.
-- Called  by checkProducer.
SELECT r.rolsuper OR pg_catalog.pg_has_role(r.oid, n.nspowner, 'USAGE') AS owner, privilege.name, privilege.wanted, privilege.writes, privilege.has
FROM pg_roles r
JOIN pg_namespace n ON n.oid = 'postroom'::regnamespace::oid
CROSS JOIN LATERAL (
    SELECT 'USAGE ON SCHEMA postroom' AS name, true AS wanted, false AS writes, pg_catalog.has_schema_privilege(r.oid, n.oid, 'USAGE') AS has
    UNION ALL
    SELECT 'CREATE ON SCHEMA postroom', false, true, pg_catalog.has_schema_privilege(r.oid, n.oid, 'CREATE')
    UNION ALL
    SELECT pg_catalog.format('INSERT (%s) ON outbox', attname), attname NOT IN ('seq', 'xid', 'created_at'), true, has_column_privilege(r.oid, attrelid, attnum, 'INSERT')
    FROM pg_attribute WHERE attrelid = 'postroom.outbox'::regclass::oid AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT pg_catalog.format('SELECT (%s) ON outbox', attname), attname IN ('source', 'event_id', 'digest'), false, has_column_privilege(r.oid, attrelid, attnum, 'SELECT')
    FROM pg_attribute WHERE attrelid = 'postroom.outbox'::regclass::oid AND attname IN ('source', 'event_id', 'digest', 'data')
    UNION ALL
    SELECT pg_catalog.format('%s ON %s', p, c.relname), false, true,
           CASE WHEN p = 'UPDATE' THEN has_any_column_privilege(r.oid, c.oid, p) ELSE has_table_privilege(r.oid, c.oid, p) END
    FROM pg_class c, pg_catalog.unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE']) AS p
    WHERE c.relnamespace = n.oid AND c.relkind = 'r' AND c.relname IN ('outbox', 'relay', 'inbox', 'migration')
    UNION ALL
    SELECT 'SELECT ON migration', true, false, has_table_privilege(r.oid, 'postroom.migration', 'SELECT')
    UNION ALL
    SELECT pg_catalog.format('EXECUTE ON FUNCTION %s', f.proname), f.wanted, true, has_function_privilege(r.oid, f.oid, 'EXECUTE')
    FROM (SELECT oid, proname, prosecdef OR prorettype = 'trigger'::regtype::oid AS owner,
                 proname IN ('write', 'content_digest', 'refuse_conflict', 'check_event', 'unchecked', 'cancel') AS wanted
          FROM pg_proc WHERE pronamespace = n.oid) f
    WHERE f.wanted OR f.owner -- a function that runs with the rights of the caller gives no rights
) privilege
WHERE r.rolname = $1;
