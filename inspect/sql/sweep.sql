-- Where the expiry of the ledger stands: the next page, of how many, and for how
-- long that has been due.
--
-- Locks   none.
-- Index   none; one row.
-- Called  by Inspector.Tables.
SELECT next_page, pg_relation_size('postroom.inbox') / current_setting('block_size')::int AS pages,
       greatest(extract(epoch FROM now() - next_at), 0)::float8 AS due
FROM postroom.sweep;
