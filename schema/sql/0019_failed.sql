-- The failures of an event that succeeded in the end are kept in the ledger, until its row
-- there expires: the row of held, which has them otherwise, is removed with the success.
--
-- Additive: code of version 18 leaves the column empty, as every event does that never
-- failed. No step reads a table. No domain: the rows would be checked for its rules.
ALTER TABLE postroom.inbox ADD COLUMN failures jsonb;
COMMENT ON COLUMN postroom.inbox.failures IS
    'The last ten failures of an event that succeeded after them, without stacks, and 300 characters of each. NULL: it never failed, or was decided before version 19.';
