-- Instance $2 of saga $1, with the steps of its definition.
--
-- Locks   none.
-- Index   the primary keys.
-- Called  by Store.Show.
SELECT s.version, s.state, s.ended_at IS NULL AND coalesce(s.deadline + interval '5 minutes', s.waits_since + coalesce(d.stuck, '1 hour')) < now(), s.step, s.revision,
       s.started_at, s.waits_since, s.deadline, s.ended_at, s.note, s.correlation_id, s.causation_id, s.data, coalesce(d.steps, '[]')
FROM postroom.saga s
LEFT JOIN postroom.saga_definition d USING (name, version)
WHERE s.name = $1 AND s.key = $2
