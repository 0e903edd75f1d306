-- Records what happened in instance $2 of saga $1 and led to revision $3, in this order: the steps
-- $4, directions $5, what happened $6, and the types $7 and ids $8 of events, empty for none.
--
-- Locks   the new rows.
-- Index   the primary key; saga_step_sent refuses a second command with the same id.
-- Called  by table.record.
INSERT INTO postroom.saga_step (name, key, revision, step, direction, what, type, event_id)
SELECT $1, $2, $3, h.step, h.direction, h.what, nullif(h.type, ''), nullif(h.event_id, '')
FROM unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::text[]) WITH ORDINALITY AS h (step, direction, what, type, event_id, n)
ORDER BY h.n
