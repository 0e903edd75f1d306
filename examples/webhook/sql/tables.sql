-- The tables of the payments service, and the evidence that the proof reads.
--
-- On purpose, no constraint refuses a second effect of a webhook, and the sums add up all amounts
-- that come. A constraint would hide a fault of the delivery.
--
-- Called  by open and serve.

-- A payment, with the sums of the amounts of its webhooks. The sums do not depend on the order in
-- which webhooks come. The state is computed from the sums.
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

-- The content of each webhook, in the order in which the webhooks took effect. On purpose,
-- webhook_id is not unique.
CREATE TABLE movement (
    id         bigint      GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    webhook_id text        NOT NULL,
    payment    text        NOT NULL,
    type       text        NOT NULL,
    amount     bigint      NOT NULL,
    at         timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Evidence: every genuine webhook that the provider sent, from the provider's records. The program
-- writes them after the run.
CREATE TABLE sent (
    webhook_id text   PRIMARY KEY,
    n          int    NOT NULL, -- its number, in the order of events at the provider
    payment    text   NOT NULL,
    type       text   NOT NULL,
    amount     bigint NOT NULL
);

-- Evidence: one row for the beginning of each delivery, and one for its final answer. A changed
-- delivery has the id of a genuine delivery, another body, and a correct signature. A forged
-- delivery has its own id.
CREATE TABLE answer (
    webhook_id text NOT NULL,
    kind       text NOT NULL, -- genuine, changed or forged
    status     int  NOT NULL  -- the HTTP status; 0 in the row for the beginning
);

-- Used only with --serve: one row for each webhook that took effect.
CREATE TABLE taken (
    source     text NOT NULL,
    webhook_id text NOT NULL
);
