-- Empty the tables of the inbox, and the table of effects.
--
-- Locks   these tables. No inbox runs.
-- Called  by ledger.
TRUNCATE postroom.held, postroom.archive, postroom.receipt, postroom.inbox, postroom.subscription, postroom.node, postroom.effects;
