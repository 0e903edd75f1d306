-- Adds an entry to the history of instance $2 of saga $1, for revision $3. It says that $6 happened
-- to step $4 in direction $5, because of the event of type $7 with the id $8. As a result, the saga
-- wrote the command of step $9, of type $10 and with the id $11. $7 and $8 are NULL if there was no
-- such event. $9 to $11 are NULL if the saga wrote no command.
--
-- Locks   the new row.
-- Index   the primary key; saga_step_command refuses a second command with the same id.
-- Called  by table.record.
INSERT INTO postroom.saga_step (name, key, revision, step, direction, what, type, event_id, next_step, next_type, command_id)
VALUES ($1::text, $2::text, $3, $4, $5::text, $6, $7, $8, $9, $10, $11)
