-- Events that the broker refused: they are retried from held, and end dead.
-- Later events of a key wait behind the one that is retried or dead.
--
-- Additive: a relay of version 3 goes on with what it knows, which is rows with
-- a time to be published at. It would send events past those that wait behind
-- their key, so stop its relays before one of this version holds anything.

ALTER TABLE postroom.held
    ALTER COLUMN next_at DROP NOT NULL,
    ADD COLUMN key             text,
    ADD COLUMN dead_at         timestamptz,
    ADD COLUMN attempts        int         NOT NULL DEFAULT 0 CHECK (attempts >= 0),
    ADD COLUMN class           text        CHECK (octet_length(class) BETWEEN 1 AND 64),
    ADD COLUMN failures        jsonb       CHECK (jsonb_typeof(failures) = 'array'),
    ADD COLUMN first_failed_at timestamptz;

-- A row is due at a time, or dead, or waits behind its key; never two of them.
ALTER TABLE postroom.held
    ADD CONSTRAINT held_due_or_dead CHECK (num_nonnulls(next_at, dead_at) <= 1),
    ADD CONSTRAINT held_reachable CHECK (next_at IS NOT NULL OR dead_at IS NOT NULL OR key IS NOT NULL),
    ADD CONSTRAINT held_dead_why CHECK (dead_at IS NULL OR class IS NOT NULL);

-- Events that wait behind their key are not due, and need no entry. The handler
-- is a column, not a condition: see internal/pglog/sql/pass.sql.
DROP INDEX postroom.held_due;
CREATE INDEX held_due ON postroom.held (handler, next_at, pos) WHERE next_at IS NOT NULL;

-- The events of a key, in their order; and one of them at most is due.
CREATE UNIQUE INDEX held_key_pos ON postroom.held (handler, key, pos) WHERE key IS NOT NULL;
CREATE UNIQUE INDEX held_key_due ON postroom.held (handler, key) WHERE key IS NOT NULL AND next_at IS NOT NULL;

COMMENT ON COLUMN postroom.held.key IS
    'The key, where the event blocks later ones of it or waits behind an earlier one. NULL for scheduled events: no order is promised for them.';
COMMENT ON COLUMN postroom.held.next_at IS
    'When the event is due, by this database''s clock. NULL: it waits behind its key, or is dead.';
COMMENT ON COLUMN postroom.held.dead_at IS
    'When its attempts were spent, or it failed for good. Nothing happens to it until an operator decides.';
COMMENT ON COLUMN postroom.held.attempts IS
    'How often it was refused. An outage, or an answer that never came, is no attempt.';
COMMENT ON COLUMN postroom.held.class IS
    'The class of its last failure, of a closed set.';
COMMENT ON COLUMN postroom.held.failures IS
    'Its last ten failures: at, class, text.';
