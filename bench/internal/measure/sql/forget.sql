-- Forget what was decided, what is owed, what was called, where handlers stand and what they did.
--
-- Locks   these tables. No inbox runs.
-- Called  by bench.ledger.
TRUNCATE postroom.held, postroom.archive, postroom.receipt, postroom.inbox, postroom.subscription, postroom.node, postroom.effects;
