-- The sequences that are behind the rows which they number, except that of the log: the last number
-- that each gave out, and the highest number of its rows. Of saga_step, the statement looks at 1,000
-- rows. They are not in the order of their numbers, so they show most likely that the sequence is behind.
--
-- Locks   none.
-- Index   the primary key of each table.
-- Called  by checkSequences.
SELECT name, last, high
FROM (
    SELECT 'relay_checkpoint_id_seq' AS name, last_value - (NOT is_called)::int AS last, (SELECT max(id) FROM postroom.relay_checkpoint) AS high FROM postroom.relay_checkpoint_id_seq
    UNION ALL
    SELECT 'republish_id_seq', last_value - (NOT is_called)::int, (SELECT max(id) FROM postroom.republish) FROM postroom.republish_id_seq
    UNION ALL
    SELECT 'held_id_seq', last_value - (NOT is_called)::int, greatest((SELECT max(id) FROM postroom.held), (SELECT max(id) FROM postroom.archive)) FROM postroom.held_id_seq
    UNION ALL
    SELECT 'audit_id_seq', last_value - (NOT is_called)::int, (SELECT max(id) FROM postroom.audit) FROM postroom.audit_id_seq
    UNION ALL
    SELECT 'replay_id_seq', last_value - (NOT is_called)::int, (SELECT max(id) FROM postroom.replay) FROM postroom.replay_id_seq
    UNION ALL
    SELECT 'dry_run_id_seq', last_value - (NOT is_called)::int, (SELECT max(id) FROM postroom.dry_run) FROM postroom.dry_run_id_seq
    UNION ALL
    SELECT 'saga_step_id_seq', last_value - (NOT is_called)::int,
           (SELECT max(id) FROM (SELECT id FROM postroom.saga_step ORDER BY name, key, id LIMIT 1000) looked) FROM postroom.saga_step_id_seq
) sequences
--guard:doctor-names-all-sequences false
WHERE high > last
ORDER BY name;
