-- Return the event types that any process of handler $1 asked for. NULL means all types.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by Records.AskedFor, for an event of a type that this process does not have; and by
--         Upkeep.Known, which needs only to know whether there is a row.
SELECT types FROM postroom.subscription WHERE handler = $1;
