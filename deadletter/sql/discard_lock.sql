-- Which of the events $1 are still dead. They stay dead until the transaction ends.
--
-- Locks   the held rows, in their order; the keys are locked before, and the relay's
--         row.
-- Index   held_pkey (id).
-- Called  by Store.Discard, before discard.sql.
SELECT id FROM postroom.held WHERE id = ANY ($1::bigint[]) AND dead_at IS NOT NULL
ORDER BY id
FOR UPDATE;
