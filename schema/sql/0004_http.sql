-- The tables for HTTP: answers to requests that have an idempotency key, and the endpoints to which
-- Postroom sends webhooks.
--
-- Locks   nothing that is in use: every object is new.
-- Called  by Migrate and Print, as the fourth migration.

--
-- Answers to requests
--

-- The server compares keys byte by byte. The primary key begins with the column key, because most
-- rows have different values there.
--
-- There are no CHECK constraints, and no domains with constraints. The server would prepare them
-- for each statement, and that took a tenth of the time for storing an answer. The Go package
-- checks lengths and states before it writes a row.
CREATE TABLE postroom.idempotency (
    scope        text COLLATE "C" NOT NULL,
    principal    text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    fingerprint  bytea            NOT NULL,

    state        text             NOT NULL,
    attempts     int              NOT NULL DEFAULT 1,

    -- The claim, in lease mode. In transaction mode there is no row before the answer exists.
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
    'The answers to requests with a key, for each operation and caller, until they expire. A repeated request gets the same answer and has no second effect.';
COMMENT ON COLUMN postroom.idempotency.scope IS
    'The operation: method and route, or the name of a job. scope, principal and key have at most 255 bytes each.';
COMMENT ON COLUMN postroom.idempotency.principal IS
    'The caller that sent the request, or a digest of it. The same key of another caller is another key.';
COMMENT ON COLUMN postroom.idempotency.key IS
    'The key that the client sent.';
COMMENT ON COLUMN postroom.idempotency.fingerprint IS
    'A byte that says how the fingerprint was computed, and a SHA-256 of the request. Another request with the same key is refused.';
COMMENT ON COLUMN postroom.idempotency.state IS
    'complete: the request is answered. There are two more states in lease mode. pending: an attempt has claimed the key. failed: an attempt gave up, and the next attempt continues after the last phase that is done.';
COMMENT ON COLUMN postroom.idempotency.attempts IS
    'How many attempts at the request were begun.';
COMMENT ON COLUMN postroom.idempotency.owner IS
    'The attempt that has claimed the key, until lease_until.';
COMMENT ON COLUMN postroom.idempotency.fence IS
    'Rises with each claim. A write with an older fence changes nothing.';
COMMENT ON COLUMN postroom.idempotency.lease_until IS
    'When the claim of owner ends, if owner does not renew it.';
COMMENT ON COLUMN postroom.idempotency.point IS
    'The last phase that is done.';
COMMENT ON COLUMN postroom.idempotency.checkpoints IS
    'The results of phases and calls that are done, by their names. The calls with an unknown outcome are under the empty name.';
COMMENT ON COLUMN postroom.idempotency.status IS
    'The HTTP status of the answer. NULL: there is no answer yet, or it is not an HTTP answer.';
COMMENT ON COLUMN postroom.idempotency.headers IS
    'The headers of the answer.';
COMMENT ON COLUMN postroom.idempotency.body IS
    'The bytes of the answer, as they were sent or as a codec encoded them.';
COMMENT ON COLUMN postroom.idempotency.ref IS
    'The reference from which the answer can be made again, if the answer itself is not kept.';
COMMENT ON COLUMN postroom.idempotency.dropped IS
    'true: the answer was too large to be kept.';
COMMENT ON COLUMN postroom.idempotency.completed_at IS
    'When the answer was stored.';
COMMENT ON COLUMN postroom.idempotency.expires_at IS
    'When the key is forgotten. After that time, a request with the same key is a new request.';

-- idempotency/sql/purge.sql finds expired rows.
CREATE INDEX idempotency_expiry ON postroom.idempotency (expires_at);

--
-- Endpoints of webhooks
--

CREATE TABLE postroom.webhook_endpoint (
    id              text        COLLATE "C" PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 128),
    account         text        COLLATE "C" NOT NULL DEFAULT '' CHECK (octet_length(account) <= 255),
    url             text        NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 2048),
    types           text[]      NOT NULL DEFAULT '{}',
    secrets         text[]      NOT NULL CHECK (cardinality(secrets) BETWEEN 1 AND 5),
    rotated_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),

    -- Its state
    disabled_at     timestamptz,
    disabled_reason text        CHECK (octet_length(disabled_reason) BETWEEN 1 AND 4096),
    failing_since   timestamptz,
    paused_until    timestamptz,
    last_status     int,
    last_at         timestamptz,
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
COMMENT ON TABLE postroom.webhook_endpoint IS
    'The endpoints to which webhooks are sent, and the state of each. A row changes when the state of its endpoint changes, not with each delivery: receipt has the deliveries.';
COMMENT ON COLUMN postroom.webhook_endpoint.account IS
    'The account that the endpoint belongs to. An event goes to the endpoints of its own account.';
COMMENT ON COLUMN postroom.webhook_endpoint.url IS
    'The URL to which its requests go. It may contain a secret of the receiver.';
COMMENT ON COLUMN postroom.webhook_endpoint.types IS
    'The types of events that the endpoint gets. Empty: all.';
COMMENT ON COLUMN postroom.webhook_endpoint.secrets IS
    'The keys with which messages are signed, the newest first. The first key always signs. The other keys sign until 24 hours after rotated_at.';
COMMENT ON COLUMN postroom.webhook_endpoint.rotated_at IS
    'When the first of secrets replaced the previous one. NULL: never.';
COMMENT ON COLUMN postroom.webhook_endpoint.disabled_at IS
    'Since when nothing is sent to the endpoint. NULL: it is enabled.';
COMMENT ON COLUMN postroom.webhook_endpoint.disabled_reason IS
    'Why nothing is sent to the endpoint.';
COMMENT ON COLUMN postroom.webhook_endpoint.failing_since IS
    'When the first attempt after the last success failed. NULL: the last attempt succeeded. If an endpoint has failed for five days, it is disabled.';
COMMENT ON COLUMN postroom.webhook_endpoint.paused_until IS
    'Until this time nothing is sent to the endpoint, because it fails or asked for a pause.';
COMMENT ON COLUMN postroom.webhook_endpoint.last_status IS
    'The HTTP status of the last failure, or of the first success after it. 0: there was no answer. NULL: nothing was sent yet.';
COMMENT ON COLUMN postroom.webhook_endpoint.last_at IS
    'When last_status was set.';

-- For matching.sql of package webhook, which finds the endpoints of an event.
CREATE INDEX webhook_endpoint_enabled ON postroom.webhook_endpoint (account) WHERE disabled_at IS NULL;

-- For failing.sql in internal/endpoints and disabled.sql of package webhook.
CREATE INDEX webhook_endpoint_unwell ON postroom.webhook_endpoint (failing_since) WHERE disabled_at IS NOT NULL OR failing_since IS NOT NULL;

--
-- Rights
--

CREATE FUNCTION postroom.grant_idempotency(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT, INSERT, UPDATE, DELETE ON postroom.idempotency',
        'SELECT ON postroom.migration, postroom.instance' -- for Guard.Check, and for the keys that vendors get
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_idempotency(regrole) IS
    'Grants a role only the rights that a guard of package idempotency needs. Call it as the owner of the tables, and again after a migration.';

CREATE FUNCTION postroom.grant_webhooks(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration', -- Endpoints.Check
        'SELECT, INSERT, UPDATE ON postroom.webhook_endpoint',
        'INSERT ON postroom.audit',
        'SELECT (id) ON postroom.audit' -- INSERT … RETURNING id
    ], role)
$$;
COMMENT ON FUNCTION postroom.grant_webhooks(regrole) IS
    'Grants a role the rights to send webhooks and to manage their endpoints. A process that sends also needs grant_inbox. Call it as the owner of the tables, and again after a migration.';
