-- Return the id among $3 of the transaction that wrote the inbox row, as it is now, of the event with
-- dedupe key $2 of handler $1. If the commit of a transaction was not answered, the row says whether
-- this transaction decided, held or settled the event. No row: it was another one, or none.
--
-- Locks   none.
-- Index   inbox's primary key.
-- Called  by DB.Writer.
SELECT t.id
FROM postroom.inbox
CROSS JOIN pg_catalog.unnest($3::text[]) AS t (id)
WHERE inbox.handler = $1 AND inbox.dedupe_key = $2 AND inbox.xmin OPERATOR(pg_catalog.=) t.id::xid8::xid;
