-- Forget what was decided, what is owed, where handlers stand and what they did.
--
-- Locks   these tables. No inbox runs.
-- Called  by bench.ledger.
TRUNCATE postroom.held, postroom.inbox, postroom.subscription, postroom.node, postroom.effects;
