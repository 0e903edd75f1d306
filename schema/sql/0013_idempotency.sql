-- What was answered to requests that carry a key, so that the same request, sent
-- again, has the same answer and no second effect.
--
-- Additive: code of version 12 knows nothing of it.

-- Keys are compared byte by byte, which is what is meant and costs the least; and the
-- key first, which differs from the others in most rows.
--
-- There are no CHECK constraints, also not by domains: the server sets them up anew for
-- each statement, which was a tenth of what an answer cost to keep. Lengths and states
-- are judged before a row is written.
CREATE TABLE postroom.idempotency (
    scope        text COLLATE "C" NOT NULL,
    principal    text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    fingerprint  bytea            NOT NULL,

    state        text             NOT NULL,
    attempts     int              NOT NULL DEFAULT 1,

    -- A claim of lease mode. In the other mode there is no row before the answer.
    owner        uuid,
    fence        bigint           NOT NULL DEFAULT 0,
    lease_until  timestamptz,
    point        text,
    checkpoints  jsonb,

    status       int,
    headers      jsonb,
    body         bytea,
    ref          text,
    dropped      boolean          NOT NULL DEFAULT false,

    created_at   timestamptz      NOT NULL DEFAULT clock_timestamp(),
    completed_at timestamptz,
    expires_at   timestamptz      NOT NULL,

    PRIMARY KEY (key, principal, scope)
);

-- Serves idempotency/sql/purge.sql.
CREATE INDEX idempotency_expiry ON postroom.idempotency (expires_at);

COMMENT ON TABLE postroom.idempotency IS
    'What was answered to requests with a key, by operation and caller, until it expires.';
COMMENT ON COLUMN postroom.idempotency.scope IS
    'The operation: method and route, or the name of a job. Up to 255 bytes, as are principal and key.';
COMMENT ON COLUMN postroom.idempotency.principal IS
    'Who asked, or a digest of it: a key means nothing to another caller.';
COMMENT ON COLUMN postroom.idempotency.fingerprint IS
    'A byte that says how it was made, and a SHA-256, of the request: the same key with another request is refused.';
COMMENT ON COLUMN postroom.idempotency.state IS
    'complete: answered. pending, failed: lease mode alone; the next attempt goes on where this one stopped.';
COMMENT ON COLUMN postroom.idempotency.fence IS
    'Rises with each claim. Whoever lost its claim writes nothing any more.';
COMMENT ON COLUMN postroom.idempotency.point IS
    'The last phase that is done.';
COMMENT ON COLUMN postroom.idempotency.checkpoints IS
    'What the phases that are done returned, by name.';
COMMENT ON COLUMN postroom.idempotency.body IS
    'The answer''s bytes, as they were or as a codec made them.';
COMMENT ON COLUMN postroom.idempotency.ref IS
    'What the answer is made of again, where it is not kept itself.';
COMMENT ON COLUMN postroom.idempotency.dropped IS
    'The answer was too large to be kept.';

-- Grants a role what a service needs that keeps answers here.
--
--     SELECT postroom.grant_idempotency('shop_app');
--
-- Call it as the owner of the tables; again after a migration.
CREATE FUNCTION postroom.grant_idempotency(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT, INSERT, UPDATE, DELETE ON postroom.idempotency',
        'SELECT ON postroom.migration' -- Guard.Check
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_idempotency(regrole) IS
    'Grants a role what it needs to keep answers, and no more. Call it as the owner of the tables, again after a migration.';
