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
    'The caller that sent the request, or a SHA-256 of the caller''s name. If another caller sends the same key, that is another key.';
COMMENT ON COLUMN postroom.idempotency.key IS
    'The key that the client sent.';
COMMENT ON COLUMN postroom.idempotency.fingerprint IS
    'A byte that says how the fingerprint was computed, and a SHA-256 of the request. A request with the same key and another fingerprint is refused.';
COMMENT ON COLUMN postroom.idempotency.state IS
    'complete: the request is answered. There are two more states in lease mode. pending: an attempt has claimed the key. failed: an attempt failed, and the next attempt does not repeat the phases and calls that are done.';
COMMENT ON COLUMN postroom.idempotency.attempts IS
    'How many attempts at the request were begun. In transaction mode, failed attempts do not count.';
COMMENT ON COLUMN postroom.idempotency.owner IS
    'The attempt that has claimed the key, until lease_until.';
COMMENT ON COLUMN postroom.idempotency.fence IS
    'Rises with each claim. A write with an older fence changes nothing.';
COMMENT ON COLUMN postroom.idempotency.lease_until IS
    'When the claim of owner ends, if owner does not renew it.';
COMMENT ON COLUMN postroom.idempotency.point IS
    'The phase or call that was done last.';
COMMENT ON COLUMN postroom.idempotency.checkpoints IS
    'The results of the phases and calls that are done, by the names of the phases and calls. The entry with the empty name has the calls that began and have an unknown outcome.';
COMMENT ON COLUMN postroom.idempotency.status IS
    'The HTTP status of the answer. NULL: there is no answer yet, or it is not an HTTP answer.';
COMMENT ON COLUMN postroom.idempotency.headers IS
    'The headers of the answer.';
COMMENT ON COLUMN postroom.idempotency.body IS
    'The bytes of the answer, as they were sent or as a codec encoded them.';
COMMENT ON COLUMN postroom.idempotency.ref IS
    'If the handler called KeepRef: the reference from which the answer can be made again. Then the answer itself is not kept.';
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
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL)),
    -- In the years 1 to 9999, as JSON has it: one odd row must not take the list from operators.
    --guard:endpoints-have-times-that-tools-can-print 1 true
    CONSTRAINT webhook_endpoint_times CHECK (least(rotated_at, created_at, disabled_at, failing_since, paused_until, last_at) >= '0001-01-01 00:00:00+00' AND greatest(rotated_at, created_at, disabled_at, failing_since, paused_until, last_at) < '10000-01-01 00:00:00+00')
);
COMMENT ON TABLE postroom.webhook_endpoint IS
    'The endpoints to which webhooks are sent, and the state of each. A row changes only when the state of its endpoint changes. The table receipt has the single deliveries.';
COMMENT ON COLUMN postroom.webhook_endpoint.account IS
    'The account that the endpoint belongs to. An event goes to the endpoints of its own account.';
COMMENT ON COLUMN postroom.webhook_endpoint.url IS
    'The URL to which the requests for the endpoint go. The URL may contain a secret of the receiver.';
COMMENT ON COLUMN postroom.webhook_endpoint.types IS
    'The types of events that the endpoint gets. Empty: all.';
COMMENT ON COLUMN postroom.webhook_endpoint.secrets IS
    'The keys with which messages are signed, the newest first. The first key always signs. The other keys sign until 24 hours after rotated_at.';
COMMENT ON COLUMN postroom.webhook_endpoint.rotated_at IS
    'When the first of secrets replaced the previous secret. NULL: the endpoint has its first secret.';
COMMENT ON COLUMN postroom.webhook_endpoint.disabled_at IS
    'Since when the endpoint is disabled: nothing is sent to it. NULL: the endpoint is enabled.';
COMMENT ON COLUMN postroom.webhook_endpoint.disabled_reason IS
    'Why the endpoint is disabled.';
COMMENT ON COLUMN postroom.webhook_endpoint.failing_since IS
    'When the first attempt failed since the last success, or since the endpoint was last enabled. NULL: no attempt has failed since then. If an attempt fails five days later or more, without a success in between, the endpoint is disabled.';
COMMENT ON COLUMN postroom.webhook_endpoint.paused_until IS
    'Until this time nothing is sent to the endpoint, because the endpoint fails or asked for a pause.';
COMMENT ON COLUMN postroom.webhook_endpoint.last_status IS
    'The HTTP status of the last recorded attempt. All failures are recorded. A success is recorded if it is the first attempt, or the first success after a failure. 0: there was no answer. NULL: no attempt was recorded yet.';
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
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT, INSERT, UPDATE, DELETE ON postroom.idempotency',
        'SELECT ON postroom.migration, postroom.instance' -- for Guard.Check, and for the keys that vendors get
    ], role)
$$;
REVOKE ALL ON FUNCTION postroom.grant_idempotency FROM PUBLIC; -- the owner calls it
COMMENT ON FUNCTION postroom.grant_idempotency(regrole) IS
    'Grants a role only the rights that a guard of package idempotency needs. Call the function as the owner of the tables. migrate up and schema.Migrate repeat the grant; after a migration with another tool, call the function again.';

CREATE FUNCTION postroom.grant_webhooks(role regrole)
RETURNS void
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT postroom.grant_all(ARRAY[
        pg_catalog.format('USAGE ON SCHEMA %s', 'postroom'::regnamespace),
        'SELECT ON postroom.migration, postroom.instance', -- Endpoints.Check, Sender.Check
        'SELECT, INSERT, UPDATE, DELETE ON postroom.webhook_endpoint',
        'INSERT (actor, action, reason, events, handler, source, event_id, replay, details) ON postroom.audit',
        'SELECT (id) ON postroom.audit' -- INSERT … RETURNING id
    ], role)
$$;
REVOKE ALL ON FUNCTION postroom.grant_webhooks FROM PUBLIC; -- the owner calls it
COMMENT ON FUNCTION postroom.grant_webhooks(regrole) IS
    'Grants a role the rights to send webhooks and to manage their endpoints. The role of a process that sends webhooks also needs grant_inbox. Call the function as the owner of the tables. migrate up and schema.Migrate repeat the grant; after a migration with another tool, call the function again.';
