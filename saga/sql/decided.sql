-- Whether an operator made a decision about instance $2 of saga $1 whose event has the source $3 and
-- the id $4, and whose data has the SHA-256 $5.
--
-- Locks   none.
-- Index   the primary key.
-- Called  by table.decision.
SELECT EXISTS (
    SELECT FROM postroom.saga_decision
    --guard:a-decision-has-its-content 5 = $5::bytea IS NOT NULL
    WHERE name = $1 AND key = $2 AND $3::text = '/operator' AND event_id = $4 AND digest = $5
)
