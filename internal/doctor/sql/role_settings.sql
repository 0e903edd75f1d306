-- The settings with the names $1 that are set for this database, or for roles that write to the log
-- or to inbox. The current role is left out: settings.sql returns its settings.
--
-- Locks   none.
-- Index   none; there are as many rows as roles and databases with settings.
-- Called  by examination.loadRoleSettings.
SELECT coalesce(r.rolname::text, '') AS role, split_part(setting.pair, '=', 1) AS name,
       substr(setting.pair, position('=' IN setting.pair) + 1) AS value
FROM pg_db_role_setting s
CROSS JOIN LATERAL pg_catalog.unnest(s.setconfig) AS setting (pair)
LEFT JOIN pg_roles r ON r.oid = s.setrole
LEFT JOIN pg_database d ON d.oid = s.setdatabase
WHERE split_part(setting.pair, '=', 1) = ANY ($1::text[])
  AND (s.setdatabase = 0::oid OR d.datname = current_database())
  AND (s.setrole = 0::oid OR r.rolname <> current_user
       AND (has_any_column_privilege(r.oid, 'postroom.outbox', 'INSERT') OR has_any_column_privilege(r.oid, 'postroom.inbox', 'INSERT')))
ORDER BY role, name;
