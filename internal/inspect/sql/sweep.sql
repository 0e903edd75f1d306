-- The progress of the sweep, which removes old rows from inbox: the next page, the number of pages,
-- and how long the next step has been due.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Inspector.Tables.
SELECT next_page, pg_catalog.pg_relation_size('postroom.inbox') / current_setting('block_size')::int AS pages,
       greatest(extract(epoch FROM now() - due_at), 0)::float8 AS due
FROM postroom.sweep;
