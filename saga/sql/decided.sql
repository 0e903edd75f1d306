-- Whether the audit has a decision whose event has the source $1 and the id $2, and whose data has
-- the SHA-256 $3, in hexadecimal digits.
--
-- Locks   none.
-- Index   audit_event (event_id).
-- Called  by table.decision.
SELECT EXISTS (
    SELECT FROM postroom.audit
    --guard:a-decision-has-its-content 4 = $3 <> ''
    WHERE event_id = $2 AND source = $1 AND action LIKE 'saga %' AND details ->> 'sha256' = $3
)
