-- The rights that a producer must have, or must not have, and whether role $1 has them. If the role
-- does not exist, the result has no row.
--
-- Locks   none.
-- Index   pg_class's and pg_proc's by name.
-- Called  by checkProducer.
SELECT r.rolsuper OR pg_has_role(r.oid, n.nspowner, 'USAGE') AS owner, privilege.name, privilege.wanted, privilege.writes, privilege.has
FROM pg_roles r
JOIN pg_namespace n ON n.oid = 'postroom'::regnamespace
CROSS JOIN LATERAL (
    SELECT 'USAGE ON SCHEMA postroom' AS name, true AS wanted, false AS writes, has_schema_privilege(r.oid, n.oid, 'USAGE') AS has
    UNION ALL
    SELECT 'CREATE ON SCHEMA postroom', false, true, has_schema_privilege(r.oid, n.oid, 'CREATE')
    UNION ALL
    SELECT format('INSERT (%s) ON outbox', attname), attname NOT IN ('seq', 'xid', 'created_at'), true, has_column_privilege(r.oid, attrelid, attnum, 'INSERT')
    FROM pg_attribute WHERE attrelid = 'postroom.outbox'::regclass AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT format('SELECT (%s) ON outbox', attname), attname IN ('source', 'event_id', 'digest'), false, has_column_privilege(r.oid, attrelid, attnum, 'SELECT')
    FROM pg_attribute WHERE attrelid = 'postroom.outbox'::regclass AND attname IN ('source', 'event_id', 'digest', 'data')
    UNION ALL
    SELECT format('%s ON %s', p, c.relname), false, true,
           CASE WHEN p = 'UPDATE' THEN has_any_column_privilege(r.oid, c.oid, p) ELSE has_table_privilege(r.oid, c.oid, p) END
    FROM pg_class c, unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE']) AS p
    WHERE c.relnamespace = n.oid AND c.relkind = 'r' AND c.relname IN ('outbox', 'relay', 'inbox', 'migration')
    UNION ALL
    SELECT 'SELECT ON migration', true, false, has_table_privilege(r.oid, 'postroom.migration', 'SELECT')
    UNION ALL
    SELECT format('USAGE ON TYPE %s', t.typname), true, false, has_type_privilege(r.oid, t.oid, 'USAGE')
    FROM pg_type t WHERE t.typnamespace = n.oid
        AND t.typname IN ('identifier', 'subject', 'label', 'headers', 'digest', 'instant', 'media_type', 'trace_state', 'body')
    UNION ALL
    SELECT format('EXECUTE ON FUNCTION %s', f.proname), true, false, has_function_privilege(r.oid, f.oid, 'EXECUTE')
    FROM pg_proc f WHERE f.pronamespace = n.oid AND f.proname IN ('write', 'content_digest', 'refuse_conflict', 'check_headers', 'check_event', 'unchecked', 'cancel')
) privilege
WHERE r.rolname = $1;
