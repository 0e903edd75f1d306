-- Set, for the rest of the transaction, the encoding and the formats in which pgx writes and reads
-- values, even if code of the application has set others.
--
-- Locks   none.
-- Index   none.
-- Called  by packages with a Loan or a Pool, after the statements of the user's code, before their
--         own statements.
SELECT pg_catalog.set_config('client_encoding', 'UTF8', true), pg_catalog.set_config('DateStyle', 'ISO', true),
       pg_catalog.set_config('IntervalStyle', 'postgres', true), pg_catalog.set_config('bytea_output', 'hex', true);
