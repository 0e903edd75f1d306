-- The producers' tables, besides Postroom's own.
--
-- deed:    the transactions that were committed
-- change:  their changes, a row for each event
-- witness: every state that relays recorded. serial has the order of the commits, because each
--          transaction locks the row of postroom.relay until its commit
--
-- Called by: startPostgres, once.
CREATE TABLE account (id int PRIMARY KEY, n int NOT NULL DEFAULT 0) WITH (fillfactor = 50);
INSERT INTO account (id) SELECT generate_series(0, 999);
INSERT INTO account (id) VALUES (1000); -- of the rig's own events
CREATE TABLE deed (id text PRIMARY KEY);
CREATE TABLE change (event text PRIMARY KEY, key int NOT NULL, n int NOT NULL, poison text NOT NULL, later boolean NOT NULL DEFAULT false);
CREATE TABLE witness (serial bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, epoch bigint NOT NULL, high bigint NOT NULL);

CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    INSERT INTO public.witness (epoch, high) VALUES (NEW.epoch, NEW.high);
    RETURN NULL;
END $$;
CREATE TRIGGER noted AFTER UPDATE ON postroom.relay FOR EACH ROW
    WHEN (OLD.epoch <> NEW.epoch OR OLD.high <> NEW.high) EXECUTE FUNCTION note();

-- Each role has only the rights that its part needs: a relay cannot read the domain's tables,
-- and producers cannot read each other's events.
CREATE ROLE producer LOGIN;
GRANT SELECT, UPDATE ON account TO producer;
GRANT INSERT ON deed, change TO producer;
SELECT postroom.grant_producer('producer');
CREATE ROLE relay LOGIN;
CREATE ROLE operator LOGIN;
SELECT postroom.grant_operator('operator');
SELECT postroom.grant_relay('relay');
