-- The rights that a relay, an inbox, a guard of requests, a saga, a sender of webhooks and an
-- operator need on the tables, and the functions that they need. For each right: whether the
-- current role has the right.
--
-- Locks   none.
-- Index   none.
-- Called  by checkRights.
SELECT needs.part, needs.relation, needs.privilege,
       pg_catalog.has_schema_privilege('postroom'::regnamespace::oid, 'USAGE') AND coalesce(CASE
           WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, needs.privilege)
           ELSE has_table_privilege(c.oid, needs.privilege) OR needs.privilege <> 'DELETE' AND has_any_column_privilege(c.oid, needs.privilege)
       END, false) AS has
FROM (VALUES ('relay', 'migration', 'SELECT'), ('relay', 'outbox', 'SELECT'), ('relay', 'outbox', 'DELETE'),
             ('relay', 'outbox_seq_seq', 'SELECT'), ('relay', 'relay', 'SELECT'), ('relay', 'relay', 'UPDATE'),
             ('relay', 'held', 'SELECT'), ('relay', 'held', 'INSERT'), ('relay', 'held', 'UPDATE'), ('relay', 'held', 'DELETE'),
             ('relay', 'instance', 'SELECT'), ('relay', 'archive', 'SELECT'), ('relay', 'pause', 'SELECT'), ('relay', 'audit', 'INSERT'),
             ('relay', 'republish', 'SELECT'), ('relay', 'republish', 'INSERT'), ('relay', 'republish', 'UPDATE'),
             ('relay', 'relay_checkpoint', 'SELECT'), ('relay', 'relay_checkpoint', 'INSERT'), ('relay', 'relay_checkpoint', 'UPDATE'), ('relay', 'relay_checkpoint', 'DELETE'),
             ('relay', 'refused', 'SELECT'), ('relay', 'refused', 'INSERT'), ('relay', 'refused', 'UPDATE'), ('relay', 'refused', 'DELETE'),
             ('relay', 'saga_known', 'SELECT'), ('relay', 'saga', 'SELECT'),
             ('inbox', 'migration', 'SELECT'), ('inbox', 'instance', 'SELECT'),
             ('inbox', 'inbox', 'SELECT'), ('inbox', 'inbox', 'INSERT'), ('inbox', 'inbox', 'UPDATE'), ('inbox', 'inbox', 'DELETE'),
             ('inbox', 'held', 'SELECT'), ('inbox', 'held', 'INSERT'), ('inbox', 'held', 'UPDATE'), ('inbox', 'held', 'DELETE'),
             ('inbox', 'receipt', 'SELECT'), ('inbox', 'receipt', 'INSERT'), ('inbox', 'receipt', 'UPDATE'), ('inbox', 'receipt', 'DELETE'),
             ('inbox', 'subscription', 'SELECT'), ('inbox', 'subscription', 'INSERT'), ('inbox', 'subscription', 'UPDATE'),
             ('inbox', 'node', 'SELECT'), ('inbox', 'node', 'INSERT'), ('inbox', 'node', 'UPDATE'), ('inbox', 'node', 'DELETE'),
             ('inbox', 'sweep', 'SELECT'), ('inbox', 'sweep', 'UPDATE'),
             ('inbox', 'dedupe_window', 'SELECT'), ('inbox', 'dedupe_window', 'INSERT'), ('inbox', 'dedupe_window', 'UPDATE'),
             ('inbox', 'filter', 'SELECT'), ('inbox', 'filter', 'INSERT'), ('inbox', 'filter', 'UPDATE'),
             ('inbox', 'archive', 'SELECT'), ('inbox', 'pause', 'SELECT'), ('inbox', 'archive', 'INSERT'), ('inbox', 'audit', 'INSERT'), ('inbox', 'audit', 'SELECT'),
             ('inbox', 'dry_run', 'SELECT'), ('inbox', 'dry_run', 'UPDATE'),
             ('idempotency', 'migration', 'SELECT'), ('idempotency', 'idempotency', 'SELECT'), ('idempotency', 'idempotency', 'INSERT'),
             ('idempotency', 'idempotency', 'UPDATE'), ('idempotency', 'idempotency', 'DELETE'),
             ('sagas', 'migration', 'SELECT'), ('sagas', 'instance', 'SELECT'), ('sagas', 'dedupe_window', 'SELECT'), ('sagas', 'node', 'SELECT'), ('sagas', 'saga_decision', 'SELECT'), ('sagas', 'saga_decision', 'DELETE'),
             ('sagas', 'saga_definition', 'SELECT'), ('sagas', 'saga_definition', 'INSERT'), ('sagas', 'saga_definition', 'UPDATE'), ('sagas', 'saga_known', 'SELECT'),
             ('sagas', 'saga', 'SELECT'), ('sagas', 'saga', 'INSERT'), ('sagas', 'saga', 'UPDATE'), ('sagas', 'saga', 'DELETE'),
             ('sagas', 'saga_step', 'SELECT'), ('sagas', 'saga_step', 'INSERT'), ('sagas', 'saga_step', 'DELETE'),
             ('webhooks', 'migration', 'SELECT'), ('webhooks', 'webhook_endpoint', 'INSERT'), ('webhooks', 'audit', 'SELECT'), ('webhooks', 'audit', 'INSERT'),
             ('operator', 'webhook_endpoint', 'SELECT'), ('operator', 'webhook_endpoint', 'UPDATE'),
             ('operator', 'migration', 'SELECT'), ('operator', 'outbox', 'SELECT'), ('operator', 'subscription', 'SELECT'), ('operator', 'node', 'SELECT'),
             ('operator', 'held', 'SELECT'), ('operator', 'held', 'INSERT'), ('operator', 'held', 'UPDATE'), ('operator', 'held', 'DELETE'),
             ('operator', 'archive', 'SELECT'), ('operator', 'archive', 'INSERT'), ('operator', 'archive', 'UPDATE'), ('operator', 'archive', 'DELETE'),
             ('operator', 'replay', 'SELECT'), ('operator', 'replay', 'INSERT'), ('operator', 'replay', 'UPDATE'), ('operator', 'replay', 'DELETE'),
             ('operator', 'replay_event', 'SELECT'), ('operator', 'replay_event', 'INSERT'), ('operator', 'replay_event', 'UPDATE'), ('operator', 'replay_event', 'DELETE'),
             ('operator', 'dry_run', 'SELECT'), ('operator', 'dry_run', 'INSERT'), ('operator', 'dry_run', 'UPDATE'), ('operator', 'dry_run', 'DELETE'),
             ('operator', 'revision', 'SELECT'), ('operator', 'revision', 'INSERT'), ('operator', 'revision', 'UPDATE'), ('operator', 'revision', 'DELETE'),
             ('operator', 'receipt', 'SELECT'), ('operator', 'receipt', 'INSERT'), ('operator', 'receipt', 'UPDATE'), ('operator', 'receipt', 'DELETE'),
             ('operator', 'republish', 'SELECT'), ('operator', 'republish', 'INSERT'), ('operator', 'republish', 'UPDATE'),
             ('operator', 'pause', 'SELECT'), ('operator', 'pause', 'INSERT'), ('operator', 'pause', 'UPDATE'), ('operator', 'pause', 'DELETE'),
             ('operator', 'audit', 'SELECT'), ('operator', 'audit', 'INSERT'), ('operator', 'outbox_seq_seq', 'SELECT'),
             ('operator', 'inbox', 'SELECT'), ('operator', 'inbox', 'UPDATE'), ('operator', 'relay', 'SELECT'), ('operator', 'relay', 'UPDATE')) AS needs (part, relation, privilege)
LEFT JOIN pg_class c ON c.relnamespace = 'postroom'::regnamespace::oid AND c.relname = needs.relation
UNION ALL -- on the column secrets, because an operator has these rights on other columns
SELECT 'webhooks', 'webhook_endpoint', needs.privilege || ' (secrets)',
       pg_catalog.has_schema_privilege('postroom'::regnamespace::oid, 'USAGE') AND coalesce(has_column_privilege(c.oid, 'secrets', needs.privilege), false)
FROM (VALUES ('SELECT'), ('UPDATE')) AS needs (privilege)
LEFT JOIN pg_class c ON c.relnamespace = 'postroom'::regnamespace::oid AND c.relname = 'webhook_endpoint'
UNION ALL
SELECT needs.part, needs.name, 'EXECUTE',
       pg_catalog.has_schema_privilege('postroom'::regnamespace::oid, 'USAGE') AND coalesce(has_function_privilege(f.oid, 'EXECUTE'), false)
FROM (VALUES ('relay', 'event_lock'), ('relay', 'clipped'), ('relay', 'clamped'), ('relay', 'header_bytes'), ('inbox', 'key_lock'), ('inbox', 'enter_key'),
             ('operator', 'key_lock'), ('operator', 'event_lock'), ('operator', 'clipped'), ('operator', 'clamped'), ('operator', 'header_bytes'), ('operator', 'dead_letters'),
             ('operator', 'discarded'), ('operator', 'decide_saga')) AS needs (part, name)
LEFT JOIN pg_proc f ON f.pronamespace = 'postroom'::regnamespace::oid AND f.proname = needs.name;
