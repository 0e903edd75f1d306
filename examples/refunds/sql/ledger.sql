-- The entries of merchant $1 as JSON, the oldest first, and their sum.
--
-- Locks   none.
-- Index   none; a real service would have an index, and would return the ledger in pages.
-- Called  by service.ledger.
SELECT json_build_object(
    'balance', coalesce(sum(CASE WHEN credit = $1 THEN amount ELSE -amount END), 0),
    'entries', coalesce(json_agg(json_build_object('movement', movement_id, 'debit', debit, 'credit', credit, 'amount', amount) ORDER BY id), '[]'))::text
FROM ledger
WHERE $1 IN (debit, credit);
