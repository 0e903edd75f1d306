-- Give a transaction the settings of the reader's connection that a search for late rows needs; see
-- connect.sql and reader.sql.
--
-- Locks   none.
-- Index   none.
-- Called  by Log.Entries, before late_by_xid.sql or late_by_seq.sql.
SET LOCAL enable_seqscan = off;
SET LOCAL enable_sort = off;
SET LOCAL jit = off;
