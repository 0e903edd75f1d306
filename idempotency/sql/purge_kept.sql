-- Remove up to $1 rows as purge.sql does, and return them. If the answers of the removed rows
-- together have $2 bytes or more, the statement removes no further row.
--
-- Locks   up to $1 rows, until the transaction ends; skips rows that other transactions have
--         locked.
-- Index   idempotency_expiry (expires_at).
-- Called  by Guard.archive.
WITH old AS (
    SELECT ctid, expires_at, coalesce(octet_length(body), 0) + coalesce(octet_length(headers::text), 0) AS size
    FROM postroom.idempotency
    --guard:archive-keeps-a-claim 2 true
    --guard:archive-keeps-what-is-live 1 true
    WHERE expires_at <= clock_timestamp() AND (state <> 'pending' OR lease_until <= clock_timestamp())
    ORDER BY expires_at
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), sized AS (
    SELECT ctid, sum(size) OVER (ORDER BY expires_at, ctid) - size AS ahead FROM old
)
DELETE FROM postroom.idempotency
--guard:archive-has-a-bound-of-bytes 2.1.1 true
WHERE ctid = ANY (ARRAY(SELECT ctid FROM sized WHERE ahead < $2))
RETURNING scope, principal, key, fingerprint, state, attempts, fence, point,
          status, headers, body, ref, dropped, created_at, completed_at, expires_at, false AS live, false AS leased, false AS begun;
