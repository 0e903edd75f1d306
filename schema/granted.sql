-- The statements that repeat the grants that roles may have: a role has a right that only this grant
-- gives. Migrate tries whether the role has the other rights of the grant, too.
--
-- Locks   none.
-- Index   none; it reads the catalog.
-- Called  by Migrate, before it applies a migration.
SELECT pg_catalog.format('SELECT postroom.%I(%s::oid::regrole)', g.name, a.grantee)
FROM (VALUES
    ('grant_producer', 'outbox', 'checked', 'INSERT'), ('grant_relay', 'relay_checkpoint', NULL, 'INSERT'), ('grant_inbox', 'inbox', NULL, 'INSERT'),
    ('grant_operator', 'revision', NULL, 'INSERT'), ('grant_idempotency', 'idempotency', NULL, 'INSERT'),
    ('grant_webhooks', 'webhook_endpoint', NULL, 'INSERT'), ('grant_sagas', 'saga', NULL, 'INSERT')
) AS g (name, table_name, column_name, privilege)
JOIN pg_catalog.pg_class c ON c.relnamespace = pg_catalog.to_regnamespace('postroom')::oid AND c.relname = g.table_name
LEFT JOIN pg_catalog.pg_attribute f ON f.attrelid = c.oid AND f.attname = g.column_name
CROSS JOIN LATERAL pg_catalog.aclexplode(CASE WHEN g.column_name IS NULL THEN c.relacl ELSE f.attacl END) a
WHERE a.privilege_type = g.privilege AND a.grantee <> c.relowner AND a.grantee <> 0::oid
ORDER BY 1;
