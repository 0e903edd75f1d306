-- Figures about the rows that the run wrote.
--
-- Locks   none.
-- Index   none; it reads everything.
-- Called  by deployment.judge, after gather has stored the evidence.
SELECT (SELECT count(*) FROM charge)                              AS charges,
       (SELECT count(*) FROM refund)                              AS refunds,
       (SELECT count(*) FROM ledger)                              AS entries,
       (SELECT count(*) FROM postroom.outbox)                     AS events,
       (SELECT coalesce(sum(calls), 0)::bigint FROM provided)     AS calls,
       (SELECT coalesce(sum(effects), 0)::bigint FROM provided)   AS effects,
       (SELECT coalesce(sum(CASE WHEN debit = 'provider' THEN amount ELSE -amount END), 0)::bigint FROM ledger) AS cents;
