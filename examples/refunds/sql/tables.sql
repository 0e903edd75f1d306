-- The tables of the payment service, and the evidence that the proof reads.
--
-- On purpose, no constraint refuses a second effect of a key, or a refund of more than was charged:
-- a constraint would hide a fault.
--
-- Called  by open.

-- The charges. request_key is the Idempotency-Key. On purpose, it is not unique.
CREATE TABLE charge (
    id           text        PRIMARY KEY,
    merchant     text        NOT NULL,
    amount       bigint      NOT NULL CHECK (amount > 0), -- cents
    provider_ref text        NOT NULL,
    request_key  text        NOT NULL,
    at           timestamptz NOT NULL DEFAULT now()
);

-- The refunds of charges.
CREATE TABLE refund (
    id           text        PRIMARY KEY,
    charge_id    text        NOT NULL REFERENCES charge,
    merchant     text        NOT NULL,
    amount       bigint      NOT NULL CHECK (amount > 0),
    provider_ref text        NOT NULL,
    request_key  text        NOT NULL,
    at           timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX refund_charge_id ON refund (charge_id);

-- Charges and refunds that began and are not settled: the service may have called the provider. If
-- a row stays here, its client never sent the request again.
CREATE TABLE reservation (
    id          text        PRIMARY KEY, -- the id that the charge or refund will have
    kind        text        NOT NULL CHECK (kind IN ('charge', 'refund')),
    charge_id   text        NOT NULL,
    merchant    text        NOT NULL,
    amount      bigint      NOT NULL,
    request_key text        NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX reservation_charge_id ON reservation (charge_id);

-- Every movement of money between the provider's account and the account of a merchant.
CREATE TABLE ledger (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    movement_id text        NOT NULL, -- a charge or a refund
    debit       text        NOT NULL, -- the account that the money leaves
    credit      text        NOT NULL, -- the account that gets the money
    amount      bigint      NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ledger_movement_id ON ledger (movement_id);

-- Evidence: the final answers that clients got. The program writes them after the run.
CREATE TABLE told (
    merchant text NOT NULL,
    kind     text NOT NULL,
    key      text NOT NULL,
    status   int  NOT NULL,
    body     text NOT NULL
);

-- Evidence: the provider's record of each key that it got.
CREATE TABLE provided (
    key     text   PRIMARY KEY,
    kind    text   NOT NULL,
    ref     text   NOT NULL, -- empty if the provider declined
    amount  bigint NOT NULL,
    calls   int    NOT NULL,
    effects int    NOT NULL  -- how often money moved
);

-- Evidence: the ids of the messages in the stream.
CREATE TABLE published (event_id text NOT NULL);
