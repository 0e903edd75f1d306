-- Create the table entry. A request can insert a row into it, in addition to an order and an event.
-- Also create the tables that a service without Postroom would have. The references use them.
--
-- Locks   none; they are new.
-- Called  by openEndpoint.
CREATE TABLE postroom.entry (
    id        bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    account   text        NOT NULL,
    amount    bigint      NOT NULL,
    booked_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE postroom.key_by_hand (
    key        text        PRIMARY KEY,
    request    bytea       NOT NULL,
    status     int,
    body       bytea,
    expires_at timestamptz NOT NULL
);
CREATE INDEX ON postroom.key_by_hand (expires_at);
CREATE TABLE postroom.webhook_by_hand (
    id          text        PRIMARY KEY,
    type        text        NOT NULL,
    body        bytea       NOT NULL,
    received_at timestamptz NOT NULL DEFAULT now(),
    done_at     timestamptz
);
CREATE INDEX ON postroom.webhook_by_hand (received_at) WHERE done_at IS NULL;
CREATE TABLE postroom.process_by_hand (
    id         text        PRIMARY KEY,
    step       int         NOT NULL DEFAULT 0,
    state      jsonb       NOT NULL,
    command    text        NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now()
);
