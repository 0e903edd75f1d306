-- Answers to HTTP requests that carry an idempotency key.
--
-- Locks   nothing that is in use: every object is new.
-- Called  by Migrate and Print, as the fourth migration.

-- Keys are compared byte by byte. The primary key begins with the key, which differs in
-- most rows.
--
-- There are no CHECK constraints, and no domains with constraints: the server prepares
-- them for each statement, which was a tenth of what it cost to keep an answer. The Go
-- package checks lengths and states before it writes a row.
CREATE TABLE postroom.idempotency (
    scope        text COLLATE "C" NOT NULL,
    principal    text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    fingerprint  bytea            NOT NULL,

    state        text             NOT NULL,
    attempts     int              NOT NULL DEFAULT 1,

    -- A claim of lease mode. In transaction mode there is no row before the answer.
    owner        uuid,
    fence        bigint           NOT NULL DEFAULT 0,
    lease_until  timestamptz,
    point        text,
    checkpoints  jsonb,

    -- The answer
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
COMMENT ON TABLE postroom.idempotency IS
    'What requests with a key were answered, by operation and caller, until it expires. The same request, sent again, gets the same answer and has no second effect.';
COMMENT ON COLUMN postroom.idempotency.scope IS
    'The operation: method and route, or the name of a job. scope, principal and key have at most 255 bytes each.';
COMMENT ON COLUMN postroom.idempotency.principal IS
    'Who sent the request, or a digest of it. The same key of another caller is another key.';
COMMENT ON COLUMN postroom.idempotency.key IS
    'The key that the client sent.';
COMMENT ON COLUMN postroom.idempotency.fingerprint IS
    'A byte that says how the fingerprint was made, and a SHA-256 of the request. The same key with another request is refused.';
COMMENT ON COLUMN postroom.idempotency.state IS
    'complete: answered. In lease mode also pending (claimed) and failed: the next attempt continues after the last phase that is done.';
COMMENT ON COLUMN postroom.idempotency.attempts IS
    'How often the request was begun.';
COMMENT ON COLUMN postroom.idempotency.owner IS
    'Who has claimed the key, until lease_until.';
COMMENT ON COLUMN postroom.idempotency.fence IS
    'Rises with each claim. A write with an older fence changes nothing.';
COMMENT ON COLUMN postroom.idempotency.lease_until IS
    'When the claim of owner ends, unless it is renewed.';
COMMENT ON COLUMN postroom.idempotency.point IS
    'The last phase that is done.';
COMMENT ON COLUMN postroom.idempotency.checkpoints IS
    'By name, what each phase and call that is done returned. Under the empty name: calls whose outcome is not known.';
COMMENT ON COLUMN postroom.idempotency.status IS
    'The HTTP status of the answer. NULL: there is no answer yet, or it is not one of HTTP.';
COMMENT ON COLUMN postroom.idempotency.headers IS
    'The headers of the answer.';
COMMENT ON COLUMN postroom.idempotency.body IS
    'The bytes of the answer, as they were sent or as a codec encoded them.';
COMMENT ON COLUMN postroom.idempotency.ref IS
    'What the answer can be made from again, if the answer itself is not kept.';
COMMENT ON COLUMN postroom.idempotency.dropped IS
    'The answer was too large to be kept.';
COMMENT ON COLUMN postroom.idempotency.completed_at IS
    'When the answer was stored.';
COMMENT ON COLUMN postroom.idempotency.expires_at IS
    'When the key is forgotten. After that, the same key is a new request.';

-- idempotency/sql/purge.sql finds what has expired.
CREATE INDEX idempotency_expiry ON postroom.idempotency (expires_at);
