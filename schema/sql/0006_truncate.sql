-- A restored log that is emptied. Its rows had the transaction ids of another
-- cluster, and so nothing up to floor is looked for by them. Once they are gone,
-- and the sequence may begin again, what is written below the floor has ids of
-- this cluster: with the old floor it would never be found.
--
-- Additive: code of any version goes on. Whoever leads is no longer the leader,
-- reads the new floor and leads on.

-- With the rights of whoever empties the log: without any on relay that fails.
CREATE FUNCTION postroom.log_truncated()
RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE postroom.relay SET floor = 0, epoch = epoch + 1 WHERE floor > 0;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION postroom.log_truncated() IS
    'Trigger of outbox: without the rows of a restored log its floor would hide new ones.';

CREATE TRIGGER outbox_truncated AFTER TRUNCATE ON postroom.outbox
    FOR EACH STATEMENT EXECUTE FUNCTION postroom.log_truncated();
