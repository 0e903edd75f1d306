-- Handlers that call the outside world: what they have called, and with what result.
--
-- Additive: code of version 7 runs the handlers that it knows and leaves others'
-- events alone.

-- What an operator edits is a new revision. Steps that are done stay done.
ALTER TABLE postroom.held
    ADD COLUMN revision int NOT NULL DEFAULT 0;
COMMENT ON COLUMN postroom.held.revision IS
    'How often the event was edited. A step of an external handler has another key at the vendor in each revision.';

-- A step is noted as started before its call, and as done after it, whoever made
-- it: what happened outside happened. A receipt lives as long as its ledger row.
CREATE TABLE postroom.receipt (
    handler    postroom.handler    NOT NULL,
    dedupe_key postroom.dedupe_key NOT NULL,
    step       text        NOT NULL CHECK (octet_length(step) BETWEEN 1 AND 128),
    revision   int         NOT NULL CHECK (revision >= 0),
    key        text        NOT NULL CHECK (octet_length(key) BETWEEN 1 AND 128),
    unanswered int         NOT NULL DEFAULT 1 CHECK (unanswered >= 0),
    started_at timestamptz NOT NULL DEFAULT now(),
    done_at    timestamptz,
    result     bytea,
    PRIMARY KEY (handler, dedupe_key, step, revision),
    CONSTRAINT receipt_decided FOREIGN KEY (handler, dedupe_key) REFERENCES postroom.inbox ON DELETE CASCADE,
    CONSTRAINT receipt_started CHECK (unanswered > 0 OR done_at IS NOT NULL),
    CONSTRAINT receipt_result CHECK (result IS NULL OR done_at IS NOT NULL)
);
COMMENT ON TABLE postroom.receipt IS
    'The steps of external handlers: started before the call, done with its result after it.';
COMMENT ON COLUMN postroom.receipt.key IS
    'What the vendor was given to recognise a repetition.';
COMMENT ON COLUMN postroom.receipt.unanswered IS
    'How many calls were begun whose outcome is not known. One that is known not to have happened is taken off again.';
COMMENT ON COLUMN postroom.receipt.started_at IS
    'When the first of them was begun. The vendor''s memory for keys is counted from here.';
COMMENT ON COLUMN postroom.receipt.result IS
    'What the call returned, for every later attempt.';
