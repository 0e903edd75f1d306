-- Remove up to $1 rows as purge.sql does, and return them. If the answers of the removed rows
-- together have $2 bytes or more, the statement removes no further row. $3 is the latest time that
-- the caller believes.
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
    --guard:an-archive-believes-two-clocks 1 = expires_at <= greatest(clock_timestamp(), $3::timestamptz)
    WHERE expires_at <= least(clock_timestamp(), $3::timestamptz) AND (state <> 'pending' OR lease_until <= least(clock_timestamp(), $3::timestamptz))
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
