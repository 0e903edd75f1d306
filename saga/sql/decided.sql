-- Whether the audit has the decision with event id $2 and source $1, and with data with the SHA-256
-- $3, in hexadecimal digits.
--
-- Locks   none.
-- Index   audit_event (event_id).
-- Called  by table.decision.
SELECT EXISTS (
    SELECT FROM postroom.audit
    WHERE event_id = $2 AND source = $1 AND action LIKE 'saga %' AND details ->> 'sha256' = $3
)
