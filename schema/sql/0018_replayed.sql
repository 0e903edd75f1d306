-- The failures that led to a replay are kept with the event's part in it: the row of held,
-- which has them otherwise, is removed when the replay succeeds.
--
-- Additive: code of version 17 leaves the column empty. No step reads a table.
ALTER TABLE postroom.job_item ADD COLUMN failures jsonb;
COMMENT ON COLUMN postroom.job_item.failures IS
    'The last ten failures of the event, as held had them, when the replay released it.';
