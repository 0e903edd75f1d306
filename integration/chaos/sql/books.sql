-- The handlers' tables, besides Postroom's own. The table effect has no unique key, because the
-- checker must see a second effect of an event.
--
-- cure: for each handler, the faulty events that it can handle now, because an operator has
-- repaired the handler
--
-- Called by: startPostgres, once.
CREATE TABLE effect (
    serial  bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    handler text NOT NULL,
    event   text NOT NULL,
    key     int  NOT NULL,
    n       int  NOT NULL,
    at      timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TABLE cure (handler text, event text, PRIMARY KEY (handler, event));

CREATE ROLE consumer LOGIN;
GRANT INSERT ON effect TO consumer;
GRANT SELECT ON cure TO consumer;
SELECT postroom.grant_inbox('consumer');
GRANT INSERT ON cure TO operator;
SELECT postroom.grant_operator('operator');
