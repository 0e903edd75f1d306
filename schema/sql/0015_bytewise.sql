-- Text that stands in an index is compared byte by byte, whatever the locale of the
-- database. How a locale sorts can change with an upgrade of the operating system's C
-- library or of ICU; an index that is older then does not find all that it has, and
-- the ledger's is what keeps an event from taking effect twice. Bytes are also faster
-- to compare than words.
--
-- Additive: code of any version asks as it did.
--
-- Rows stay as they are, the indexes are made anew. Producers, relays and inboxes wait
-- meanwhile: 1 s for each million events of the log, and 2 to 3 s for each million rows
-- of the ledger, where they are in memory.

ALTER TABLE postroom.outbox
    ALTER COLUMN source       TYPE postroom.identifier COLLATE "C",
    ALTER COLUMN event_id     TYPE postroom.identifier COLLATE "C",
    ALTER COLUMN causation_id TYPE postroom.label      COLLATE "C";

-- What is held is checked against the ledger anew.
ALTER TABLE postroom.held
    ALTER COLUMN handler    TYPE postroom.holder COLLATE "C",
    ALTER COLUMN dedupe_key TYPE text            COLLATE "C",
    ALTER COLUMN key        TYPE text            COLLATE "C",
    ALTER COLUMN event_id   TYPE text            COLLATE "C";
ALTER TABLE postroom.archive
    ALTER COLUMN handler    TYPE postroom.holder COLLATE "C",
    ALTER COLUMN dedupe_key TYPE text            COLLATE "C",
    ALTER COLUMN event_id   TYPE text            COLLATE "C";
ALTER TABLE postroom.receipt
    ALTER COLUMN handler    TYPE postroom.handler    COLLATE "C",
    ALTER COLUMN dedupe_key TYPE postroom.dedupe_key COLLATE "C",
    ALTER COLUMN step       TYPE text                COLLATE "C";
ALTER TABLE postroom.inbox
    ALTER COLUMN handler    TYPE postroom.handler    COLLATE "C",
    ALTER COLUMN dedupe_key TYPE postroom.dedupe_key COLLATE "C";

ALTER TABLE postroom.subscription ALTER COLUMN handler  TYPE postroom.handler COLLATE "C";
ALTER TABLE postroom.trial        ALTER COLUMN handler  TYPE postroom.handler COLLATE "C";
ALTER TABLE postroom.audit        ALTER COLUMN event_id TYPE text COLLATE "C";
ALTER TABLE postroom.revision     ALTER COLUMN event_id TYPE text COLLATE "C";
ALTER TABLE postroom.rewind       ALTER COLUMN wish     TYPE text COLLATE "C";
ALTER TABLE postroom.job_item     ALTER COLUMN event_id TYPE text COLLATE "C";

-- A column whose collation changes loses its statistics. A table that has none yet
-- keeps it so: the planner takes one that it knows to be empty for small.
DO $$
DECLARE
    changed regclass;
BEGIN
    FOR changed IN
        SELECT oid FROM pg_catalog.pg_class
        WHERE relnamespace = 'postroom'::regnamespace AND relkind = 'r' AND reltuples > 0
    LOOP
        EXECUTE pg_catalog.format('ANALYZE %s', changed);
    END LOOP;
END
$$;
