-- The inbox must not trust the ledger for a time from which rows were removed, also after
-- somebody had rows kept for longer: an event of that time that comes again would have a
-- second effect.
--
-- Additive: inboxes of version 20 note nothing, and go by their AgeGate alone. Nothing is
-- known of what they removed before, so the column begins empty. No step reads a table.
ALTER TABLE postroom.sweep ADD COLUMN expired_before timestamptz;
COMMENT ON COLUMN postroom.sweep.expired_before IS
    'Rows of the ledger that were decided before this time may have been removed. NULL: none was.';
