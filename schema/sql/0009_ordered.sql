-- Handlers that take the events of a key in their order: who reads their stream,
-- and up to where; and the way an event takes into its key.
--
-- Additive: code of version 8 runs the handlers that it knows.

ALTER TABLE postroom.subscription
    ADD COLUMN subjects        text[] NOT NULL DEFAULT '{}',
    ADD COLUMN base            bigint NOT NULL DEFAULT 0 CHECK (base >= 0),
    ADD COLUMN floor_id        text,
    ADD COLUMN floor_stored_at timestamptz,
    ADD COLUMN epoch           bigint NOT NULL DEFAULT 0,
    ADD COLUMN reader          postroom.process,
    ADD COLUMN reader_until    timestamptz,
    ADD COLUMN takeovers       int    NOT NULL DEFAULT 0 CHECK (takeovers >= 0),
    ADD CONSTRAINT subscription_reader CHECK ((reader IS NULL) = (reader_until IS NULL));
UPDATE postroom.subscription SET subjects = types WHERE types IS NOT NULL;
COMMENT ON COLUMN postroom.subscription.subjects IS
    'Every subject that any process asked for, types among them. Whoever reads reads them all.';
COMMENT ON COLUMN postroom.subscription.base IS
    'Is added to a sequence of the stream to place an event in its key. Rises where the stream begins to count anew.';
COMMENT ON COLUMN postroom.subscription.floor_id IS
    'The message id of the message at the floor, of an ordered handler: where another is found there, the broker lost data.';
COMMENT ON COLUMN postroom.subscription.floor_stored_at IS
    'When the stream got the message at the floor.';
COMMENT ON COLUMN postroom.subscription.epoch IS
    'Rises with each reader of an ordered handler. Who read before can note nothing any more.';
COMMENT ON COLUMN postroom.subscription.reader IS
    'The process that reads the stream for an ordered handler, until reader_until.';
COMMENT ON COLUMN postroom.subscription.takeovers IS
    'How many readers in a row ended without a word, and without the floor having moved.';

-- What a transaction locks that decides, holds or settles an event of a key.
CREATE FUNCTION postroom.key_lock(handler text, key text)
RETURNS bigint
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
AS $$ SELECT hashtextextended('postroom.key ' || octet_length($1)::text || ' ' || $1 || ' ' || $2, 0) $$;
COMMENT ON FUNCTION postroom.key_lock(text, text) IS
    'The advisory lock of a handler''s key.';

-- The lock comes first: a statement in here sees what was committed until then,
-- whenever the statement around it began. Without the settings, a plan that was
-- made while held was empty would go on reading all of it.
CREATE FUNCTION postroom.enter_key(handler text, key text, pos bigint, epoch bigint)
RETURNS text
LANGUAGE plpgsql VOLATILE
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    reads boolean;
    waits boolean;
BEGIN
    IF pg_advisory_xact_lock(postroom.key_lock($1, $2)) IS NULL THEN -- never: this way it costs no statement of its own
        RETURN NULL;
    END IF;
    SELECT s.epoch = $4, EXISTS (SELECT FROM postroom.held WHERE held.handler = $1 AND held.key = $2) INTO reads, waits
    FROM postroom.subscription s WHERE s.handler = $1;
    IF reads IS NOT TRUE THEN
        RETURN 'stale';
    END IF;
    IF NOT waits THEN
        RETURN 'free';
    END IF;
    PERFORM FROM postroom.held WHERE held.handler = $1 AND held.key = $2 AND held.pos = $3;
    IF FOUND THEN
        RETURN 'late';
    END IF;
    PERFORM FROM postroom.held WHERE held.handler = $1 AND held.key = $2 AND held.pos < $3 ORDER BY held.pos DESC LIMIT 1;
    RETURN CASE WHEN FOUND THEN 'behind' ELSE 'late' END;
END
$$;
COMMENT ON FUNCTION postroom.enter_key(text, text, bigint, bigint) IS
    'Locks a handler''s key, and says where an event stands in it: free where nothing of the key is held, behind an earlier event that is, late, where one of its own place is, or only later ones, or stale, where it was read by one that does not read any more.';
