-- The endpoints to which webhooks are sent.
--
-- Locks   nothing that is in use: every object is new.
-- Called  by Migrate and Print, as the sixth migration.

CREATE TABLE postroom.webhook_endpoint (
    id              text        COLLATE "C" PRIMARY KEY CHECK (octet_length(id) BETWEEN 1 AND 128),
    account         text        COLLATE "C" NOT NULL DEFAULT '' CHECK (octet_length(account) <= 255),
    url             text        NOT NULL CHECK (octet_length(url) BETWEEN 1 AND 2048),
    types           text[]      NOT NULL DEFAULT '{}',
    secrets         text[]      NOT NULL CHECK (cardinality(secrets) BETWEEN 1 AND 5),
    rotated_at      timestamptz,
    created_at      timestamptz NOT NULL DEFAULT now(),

    -- How it does
    disabled_at     timestamptz,
    disabled_reason text        CHECK (octet_length(disabled_reason) BETWEEN 1 AND 4096),
    failing_since   timestamptz,
    paused_until    timestamptz,
    last_status     int,
    last_at         timestamptz,
    CHECK ((disabled_at IS NULL) = (disabled_reason IS NULL))
);
COMMENT ON TABLE postroom.webhook_endpoint IS
    'Where webhooks are sent, and how each endpoint does. A row is changed when its state changes, not with each delivery: receipt has those.';
COMMENT ON COLUMN postroom.webhook_endpoint.account IS
    'Whose endpoint it is. An event goes to the endpoints of its own account.';
COMMENT ON COLUMN postroom.webhook_endpoint.url IS
    'Where its requests go. It may have a secret of the receiver in it.';
COMMENT ON COLUMN postroom.webhook_endpoint.types IS
    'The types of events that the endpoint gets. Empty: all.';
COMMENT ON COLUMN postroom.webhook_endpoint.secrets IS
    'The keys that sign, newest first. The first always signs. The others sign until 24 hours after rotated_at.';
COMMENT ON COLUMN postroom.webhook_endpoint.rotated_at IS
    'When the first of secrets replaced the one before. NULL: never.';
COMMENT ON COLUMN postroom.webhook_endpoint.disabled_at IS
    'Since when nothing is sent to it. NULL: it is enabled.';
COMMENT ON COLUMN postroom.webhook_endpoint.disabled_reason IS
    'Why nothing is sent to it.';
COMMENT ON COLUMN postroom.webhook_endpoint.failing_since IS
    'When the first attempt failed since the last that succeeded. NULL: the last one succeeded. An endpoint that has failed for five days is disabled.';
COMMENT ON COLUMN postroom.webhook_endpoint.paused_until IS
    'Until when nothing is sent to it, because it fails or asked for that.';
COMMENT ON COLUMN postroom.webhook_endpoint.last_status IS
    'The HTTP status of the last failure, or of the first success after it. 0: there was no answer. NULL: nothing was sent yet.';
COMMENT ON COLUMN postroom.webhook_endpoint.last_at IS
    'When last_status was set.';

-- Serves matching.sql of package webhook: the endpoints of an event.
CREATE INDEX webhook_endpoint_enabled ON postroom.webhook_endpoint (account) WHERE disabled_at IS NULL;

-- Serves failing.sql of package endpoints and disabled.sql of package webhook.
CREATE INDEX webhook_endpoint_unwell ON postroom.webhook_endpoint (failing_since) WHERE disabled_at IS NOT NULL OR failing_since IS NOT NULL;
