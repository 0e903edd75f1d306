-- The tables of the payment service, and the evidence that the proof reads.
--
-- Nothing here hides a fault: no constraint would refuse a key's second effect, or a
-- refund of more than was charged.
--
-- Called  by open.

-- The charges. request_key is the Idempotency-Key, and not unique, on purpose.
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

-- Charges and refunds that were begun and are not settled: the provider may have been asked.
-- A row that stays here belongs to a client that never asked again.
CREATE TABLE reservation (
    id          text        PRIMARY KEY, -- of the charge or refund to be
    kind        text        NOT NULL CHECK (kind IN ('charge', 'refund')),
    charge_id   text        NOT NULL,
    merchant    text        NOT NULL,
    amount      bigint      NOT NULL,
    request_key text        NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX reservation_charge_id ON reservation (charge_id);

-- Every movement of money, from one account to another: the provider's or a merchant's.
CREATE TABLE ledger (
    id          bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    movement_id text        NOT NULL, -- a charge or a refund
    debit       text        NOT NULL, -- it leaves this account
    credit      text        NOT NULL, -- and comes to that one
    amount      bigint      NOT NULL,
    at          timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ledger_movement_id ON ledger (movement_id);

-- Evidence: the final answers that clients had. It is written after the run.
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
    ref     text   NOT NULL, -- empty if it declined
    amount  bigint NOT NULL,
    calls   int    NOT NULL,
    effects int    NOT NULL  -- how often money moved
);

-- Evidence: the ids of the messages in the stream.
CREATE TABLE published (event_id text NOT NULL);
