-- The tables of the payments service, and the evidence that the proof reads.
--
-- Nothing here hides a fault of the delivery: no constraint would refuse a
-- webhook's second effect, and the sums add up all amounts that come.
--
-- Called  by open.

-- A payment, as far as its webhooks have come. The sums do not depend on the order in which
-- webhooks come, and the state follows from the sums.
CREATE TABLE payment (
    id         text   PRIMARY KEY,
    authorized bigint NOT NULL,
    captured   bigint NOT NULL,
    refunded   bigint NOT NULL,
    state      text   NOT NULL GENERATED ALWAYS AS (
        CASE
            WHEN captured > authorized OR refunded > captured THEN 'incomplete' -- an earlier webhook has not come yet
            WHEN refunded > 0 AND refunded = captured         THEN 'refunded'
            WHEN refunded > 0                                 THEN 'partly refunded'
            WHEN captured > 0 AND captured = authorized       THEN 'captured'
            WHEN captured > 0                                 THEN 'partly captured'
            ELSE 'authorized'
        END) STORED
);

-- The content of each webhook, in the order in which they took effect. webhook_id is
-- not unique, on purpose.
CREATE TABLE movement (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    webhook_id text        NOT NULL,
    payment    text        NOT NULL,
    type       text        NOT NULL,
    amount     bigint      NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Evidence: every genuine webhook that the provider sent, as it remembers them. It
-- is written after the run.
CREATE TABLE sent (
    webhook_id text   PRIMARY KEY,
    n          int    NOT NULL, -- the order in which it happened at the provider
    payment    text   NOT NULL,
    type       text   NOT NULL,
    amount     bigint NOT NULL
);

-- Evidence: every delivery when it began, and when it was finally answered. A changed delivery has
-- the id of a genuine one and another body with a correct signature. A forged delivery has its own
-- id.
CREATE TABLE answer (
    webhook_id text NOT NULL,
    kind       text NOT NULL, -- genuine, changed or forged
    status     int  NOT NULL  -- of HTTP; 0 when it was begun
);

-- With --serve: the effects of webhooks.
CREATE TABLE taken (
    source     text NOT NULL,
    webhook_id text NOT NULL
);
