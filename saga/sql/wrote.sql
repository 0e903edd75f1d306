-- Whether an instance of a saga has written the command with the id $1.
--
-- Locks   none.
-- Index   saga_step_command (command_id).
-- Called  by table.wrote.
SELECT EXISTS (SELECT FROM postroom.saga_step WHERE command_id = $1);
