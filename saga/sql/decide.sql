-- Writes decision $4 of operator $7 about instance $2 of saga $1 with revision $3, as an event for
-- the saga and a row of the audit. $5 is the type and $6 the data of the reply, if the decision
-- gives one. $8 is the reason. $9 is the event of the decision in whose place this one comes, or NULL. Returns the id of the event. The id is NULL if the instance does not
-- exist, has ended, or has another revision.
--
-- Locks   the new rows; waits for a transaction of the saga with this instance.
-- Index   the primary key of saga.
-- Called  by Store.Decide.
SELECT postroom.decide_saga($1, $2, $3, $4, $5, $6::jsonb, $7, $8, $9)
