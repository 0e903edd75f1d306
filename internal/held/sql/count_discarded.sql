-- How many discarded events match the filter $1 to $11.
--
-- Locks   none.
-- Index   as list_discarded.sql.
-- Called  by Reader.Count.
SELECT count(*) FROM postroom.discarded($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11);
