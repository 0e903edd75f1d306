-- Begins instance $2 of saga $1, of version $3, at step $4 and with the data $5. $6 is the digest
-- of the input, $7 the correlation id or empty, and $8 the event that began the instance, or NULL.
-- Returns the identity of this Postroom, the time and the correlation id. If the instance exists,
-- returns no row.
--
-- Locks   the row, until the transaction ends. Waits for a transaction that begins the same
--         instance.
-- Index   the primary key.
-- Called  by table.insert.
INSERT INTO postroom.saga (name, key, version, state, step, data, input, correlation_id, causation_id, owner)
SELECT $1::text, $2::text, $3, 'running', $4, $5::bytea, $6, coalesce(nullif($7, ''), gen_random_uuid()::text), $8, id
FROM postroom.instance
ON CONFLICT (name, key) DO NOTHING
RETURNING owner, clock_timestamp(), correlation_id
